// llama's block with multipliers for embeddings, attention, what is added to the residual stream, and logits.
#include <ggml.h>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  read_multipliers(metadata, spec);
  if (metadata.truth_or("rope.scaling.finetuned", true)) return;  // what the converter calls "has RoPE"
  for (LayerSpec& layer : spec.layers) layer.rope.n_dims = 0;
}

}  // namespace

const Architecture kGranite = {
    .name = "granite",
    .models = "Granite 3 (dense)",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kNormalisedSoftmax}},
    .configure = configure,
};

}  // namespace winnow
