#include "engine/attention_shape.h"

#include <ggml.h>

namespace winnow {

kernels::AttentionShape attention_shape(const Model::Impl& model, int layer, EntryType key_type, EntryType value_type) {
  const LayerSpec& spec = model.spec.layer(layer);
  const ggml_tensor* sink_logits = model.weights.layer(layer).sink_logits;
  return {
      .n_group = spec.n_group(),
      .key_dim = spec.key_dim,
      .value_dim = spec.value_dim,
      .key_type = key_type,
      .value_type = value_type,
      .spec = {.scale = spec.scale,
               .sliding_window = spec.sliding_window,
               .soft_cap = spec.soft_cap,
               .sink_logits = sink_logits != nullptr ? static_cast<const float*>(sink_logits->data) : nullptr},
  };
}

}  // namespace winnow
