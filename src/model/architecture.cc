#include "model/architecture.h"

#include <array>

#include "model/architectures/all.h"
#include "winnow/error.h"

namespace winnow {
namespace {

const std::array kArchitectures = {
    &kLlama,     &kMistral3,      &kQwen2,    &kQwen3,    &kGemma,        &kGemma2,     &kGemma3,     &kGemma4,
    &kPhi3,      &kSmolLm3,       &kGranite,  &kMiniCpm,  &kOlmo2,        &kCohere2,    &kStarCoder2, &kStableLm,
    &kGlm4,      &kInternLm2,     &kErnie45,  &kSeedOss,  &kHunyuanDense, &kExaone4,    &kLfm2,       &kQwen35,
    &kQwen35Moe, &kGraniteHybrid, &kQwen2Moe, &kQwen3Moe, &kOlmoe,        &kGraniteMoe, &kGptOss,     &kDeepSeek2,
};

}  // namespace

std::span<const Architecture* const> architectures() { return kArchitectures; }

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
