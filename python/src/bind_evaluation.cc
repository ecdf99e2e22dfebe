#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <utility>

#include "bind_scorer.h"
#include "bindings.h"
#include "watch.h"
#include "winnow/evaluation.h"

namespace winnow::python {
namespace nb = nanobind;
using namespace nb::literals;

void bind_evaluation(nb::module_& module) {
  nb::class_<EvaluationOptions>(module, "EvaluationOptions")
      .def(nb::init<>())
      .def_rw("benchmarks", &EvaluationOptions::benchmarks)
      .def_rw("methods", &EvaluationOptions::methods)
      .def_rw("budgets", &EvaluationOptions::budgets)
      .def_rw("question", &EvaluationOptions::question)
      .def_rw("tasks", &EvaluationOptions::tasks)
      .def_rw("lengths", &EvaluationOptions::lengths)
      .def_rw("depths", &EvaluationOptions::depths)
      .def_rw("limit", &EvaluationOptions::limit)
      .def_rw("seed", &EvaluationOptions::seed)
      .def_rw("data", &EvaluationOptions::data)
      .def_rw("haystack", &EvaluationOptions::haystack)
      .def_rw("words", &EvaluationOptions::words)
      .def_rw("use_chat_template", &EvaluationOptions::use_chat_template, nb::for_setter(nb::arg("value").none()))
      .def_rw("n_ctx", &EvaluationOptions::n_ctx)
      .def_rw("batch", &EvaluationOptions::batch, nb::for_setter(nb::arg("value").none()))
      .def_rw("kv_memory", &EvaluationOptions::kv_memory, nb::for_setter(nb::arg("value").none()))
      .def_rw("batch_tokens", &EvaluationOptions::batch_tokens, nb::for_setter(nb::arg("value").none()))
      .def_rw("retry_failed", &EvaluationOptions::retry_failed)
      .def_rw("shard", &EvaluationOptions::shard)
      .def("store_as", [](EvaluationOptions& options, const std::string& key_type, const std::string& value_type) {
        options.key_type = parse_entry_type(key_type);
        options.value_type = parse_entry_type(value_type);
      });

  module.def(
      "evaluate",
      [](std::shared_ptr<Model> model, int n_threads, std::size_t kv_bytes_limit, int n_batch,
         const std::string& prefill_weights, const std::string& device, const EvaluationOptions& options,
         const std::string& folder, nb::object on_progress, const nb::object& on_note) {
        const EngineOptions engine{.n_threads = n_threads,
                                   .kv_bytes_limit = kv_bytes_limit,
                                   .n_batch = n_batch,
                                   .prefill_weights = parse_prefill_weights(prefill_weights),
                                   .device = device};
        const ScorerErrors errors;
        Watch watch(std::move(on_progress));
        bool is_complete = false;
        watch.run([&] {
          is_complete =
              evaluate(model, engine, options, folder,
                       {.should_stop = [&] { return watch.is_stopped(); },
                        .on_work =
                            [&](const EvaluationWork& work) {
                              constexpr double kSteps = 1e6;
                              watch.report(std::llround(work.share * kSteps), static_cast<std::int64_t>(kSteps));
                            },
                        .on_note =
                            [&](const std::string& note) {
                              const nb::gil_scoped_acquire acquire;
                              on_note(note);
                            }});
        });
        errors.rethrow();
        return is_complete;
      },
      "model"_a, "n_threads"_a, "kv_bytes_limit"_a, "n_batch"_a, "prefill_weights"_a, "device"_a, "options"_a,
      "folder"_a, "on_progress"_a.none(), "on_note"_a);

  module.def("evaluation_csv", &evaluation_csv, "folders"_a);
  module.def("evaluation_benchmarks", [] {
    nb::list rows;
    for (const BenchmarkInfo& benchmark : evaluation_benchmarks()) {
      nb::dict row;
      row["name"] = benchmark.name;
      row["summary"] = benchmark.summary;
      row["tasks"] = benchmark.tasks;
      rows.append(row);
    }
    return rows;
  });
}

}  // namespace winnow::python
