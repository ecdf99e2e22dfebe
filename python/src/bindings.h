// The parts of the module winnow._core, one file each. They mirror include/winnow; the package's Python code builds the
// public interface on them.
#pragma once

#include <nanobind/nanobind.h>

namespace winnow::python {

void bind_model(nanobind::module_& module);
void bind_chat(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_generation(nanobind::module_& module);
void bind_methods(nanobind::module_& module);
void bind_evidence(nanobind::module_& module);
void bind_scorer(nanobind::module_& module);
void bind_evaluation(nanobind::module_& module);

}  // namespace winnow::python
