// llama's block. YaRN's magnitude is divided by a second one, and queries are scaled by their position.
#include <ggml.h>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.temperature = metadata.number_or("attention.temperature_scale", 0, 0, 100);
    layer.temperature_length = layer.rope.n_ctx_orig;
  }
}

}  // namespace

const Architecture kMistral3 = {
    .name = "mistral3",
    .models = "Mistral Small 3.1 and 3.2, Ministral 3, Devstral 2",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kNormalisedSoftmax}},
    .configure = configure,
};

}  // namespace winnow
