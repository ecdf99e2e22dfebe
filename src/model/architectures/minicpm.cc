// llama's block with granite's multipliers. Older files do not state them.
#include <ggml.h>

#include <cmath>

#include "model/architectures/all.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  constexpr float kBaseWidth = 256;  // width of the model whose constants were scaled up
  spec.embedding_scale = 12;
  spec.logit_scale = kBaseWidth / static_cast<float>(spec.n_embd);
  for (LayerSpec& layer : spec.layers) layer.residual_scale = 1.4F / std::sqrt(static_cast<float>(spec.n_layer()));
  read_multipliers(metadata, spec);
}

}  // namespace

const Architecture kMiniCpm = {
    .name = "minicpm",
    .models = "MiniCPM",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .configure = configure,
};

}  // namespace winnow
