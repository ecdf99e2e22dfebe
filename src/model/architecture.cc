#include "model/architecture.h"

#include <array>

#include "winnow/error.h"

namespace winnow {
namespace {

const std::array kArchitectures = {&kLlama, &kQwen2, &kQwen3, &kGemma};

}  // namespace

const Architecture& find_architecture(std::string_view name) {
  std::string names;
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return *architecture;
    names += (names.empty() ? "" : ", ") + std::string(architecture->name);
  }
  throw Error(ErrorCode::kUnsupported,
              "the architecture '" + std::string(name) + "' is not supported; winnow runs models of: " + names);
}

}  // namespace winnow
