// The methods and their options, for people who look for one.
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "winnow/eviction.h"

namespace winnow::python {
namespace nb = nanobind;
using namespace nb::literals;

void bind_methods(nb::module_& module) {
  module.def("methods", [] {
    nb::list rows;
    for (const MethodInfo& method : eviction_methods()) {
      nb::dict row;
      row["name"] = method.name;
      row["summary"] = method.summary;
      row["paper"] = method.paper;
      row["scorer"] = method.options.scorer;
      row["layers"] = method.options.layers;
      row["heads"] = method.options.heads;
      row["selector"] = method.options.selector;
      row["cost"] = method.options.cost();
      rows.append(row);
    }
    return rows;
  });
  // The shortest text form of a method: two forms that mean the same have the same one.
  module.def(
      "method_text", [](const std::string& method) { return EvictionOptions::parse(method).text(); }, "method"_a);
}

}  // namespace winnow::python
