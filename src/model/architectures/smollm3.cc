// llama's block; every fourth layer has no RoPE.
#include <ggml.h>

#include <cstddef>

#include "model/architectures/all.h"

namespace winnow {
namespace {

void configure(const Metadata&, ModelSpec& spec) {
  constexpr std::size_t kPeriod = 4;
  for (std::size_t l = kPeriod - 1; l < spec.layers.size(); l += kPeriod) spec.layers[l].rope.n_dims = 0;
}

}  // namespace

const Architecture kSmolLm3 = {
    .name = "smollm3",
    .models = "SmolLM3",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .configure = configure,
};

}  // namespace winnow
