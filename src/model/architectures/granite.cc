// llama's block with multipliers for embeddings, attention, residuals and logits. The hybrid models have the same with
// Mamba-2 in most layers, for which the file gives 0 KV heads.
#include <ggml.h>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {
namespace {

void configure(const Metadata& metadata, ModelSpec& spec) {
  read_multipliers(metadata, spec);
  if (metadata.truth_or("rope.scaling.finetuned", true)) return;  // the converter means "has RoPE"
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

const Architecture kGraniteHybrid = {
    .name = "granitehybrid",
    .models = "Granite 4 (hybrid, dense and with experts)",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .layer = {.feed_forward = {.routing = Routing::kNormalisedSoftmax}},
    .recurrence = RecurrenceKind::kMamba2,
    .configure = configure,
};

}  // namespace winnow
