// winnow._core: winnow's public headers for the Python package.
#include "bind_errors.h"
#include "bindings.h"
#include "winnow/version.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ library, as the package winnow uses it. Not an interface: take what `import winnow` has.";
  module.attr("__version__") = winnow::kVersion;
  winnow::python::translate_errors();
  winnow::python::bind_model(module);
  winnow::python::bind_chat(module);
  winnow::python::bind_session(module);
  winnow::python::bind_generation(module);
  winnow::python::bind_methods(module);
  winnow::python::bind_evidence(module);
  winnow::python::bind_scorer(module);
  winnow::python::bind_evaluation(module);
}
