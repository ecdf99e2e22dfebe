#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {

void read_multipliers(const Metadata& metadata, ModelSpec& spec) {
  // 0 means that there is no factor: llama.cpp's saver writes it for those that a model does not have.
  const auto read = [&](const char* key, float& value, float if_zero) {
    if (!metadata.has(key)) return;
    const bool is_zero = metadata.number(key, 0, kLargestConstant) == 0;
    value = is_zero ? if_zero : metadata.number(key, kSmallestConstant, kLargestConstant);
  };
  read("embedding_scale", spec.embedding_scale, 1);
  float divisor = 1.0F / spec.logit_scale;
  read("logit_scale", divisor, 1);
  spec.logit_scale = 1.0F / divisor;
  for (LayerSpec& layer : spec.layers) {
    read("residual_scale", layer.residual_scale, 1);
    if (layer.kind != LayerKind::kRecurrent) read("attention.scale", layer.scale, layer.scale);
  }
}

void scale_queries_of_27b(int n_layer_of_27b, ModelSpec& spec) {
  if (spec.n_layer() != n_layer_of_27b) return;
  for (LayerSpec& layer : spec.layers) {
    layer.scale = 1.0F / std::sqrt(static_cast<float>(spec.n_embd / layer.n_head));
  }
}

}  // namespace winnow
