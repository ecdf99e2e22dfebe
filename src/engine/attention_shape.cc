#include "engine/attention_shape.h"

#include <ggml.h>

namespace winnow {

kernels::AttentionShape attention_shape(const Model::Impl& model, int layer, EntryType key_type, EntryType value_type) {
  const LayerSpec& spec = model.spec.layers[static_cast<std::size_t>(layer)];
  const ggml_tensor* sinks = model.weights.layers[static_cast<std::size_t>(layer)].sinks;
  return {
      .n_group = spec.n_group(),
      .key_dim = spec.key_dim,
      .value_dim = spec.value_dim,
      .key_type = key_type,
      .value_type = value_type,
      .spec = {.scale = spec.scale,
               .window = spec.window,
               .soft_cap = spec.soft_cap,
               .sinks = sinks != nullptr ? static_cast<const float*>(sinks->data) : nullptr},
  };
}

}  // namespace winnow
