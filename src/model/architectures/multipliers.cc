#include <cmath>

#include "model/architectures/all.h"
#include "model/metadata.h"

namespace winnow {

void read_multipliers(const Metadata& metadata, ModelSpec& spec) {
  const auto read = [&](const char* key, float& value) {
    if (metadata.has(key)) value = metadata.number(key, kSmallestConstant, kLargestConstant);
  };
  read("embedding_scale", spec.embedding_scale);
  float divisor = 1.0F / spec.logit_scale;
  read("logit_scale", divisor);
  spec.logit_scale = 1.0F / divisor;
  for (LayerSpec& layer : spec.layers) {
    read("residual_scale", layer.residual_scale);
    if (layer.kind != LayerKind::kRecurrent) read("attention.scale", layer.scale);
  }
}

void scale_queries_of_27b(int n_layer_of_27b, ModelSpec& spec) {
  if (spec.n_layer() != n_layer_of_27b) return;
  for (LayerSpec& layer : spec.layers) {
    layer.scale = 1.0F / std::sqrt(static_cast<float>(spec.n_embd / layer.n_head));
  }
}

}  // namespace winnow
