#include "engine/output_projection.h"

#include <ggml.h>

#include <algorithm>

namespace winnow {

std::vector<float> output_projection_slices(const Model::Impl& model, int layer, const ParallelFor& parallel_for) {
  const ggml_tensor* wo = model.weights.layer(layer).wo;
  const ggml_tensor* scale = model.weights.layer(layer).scales.wo;
  const float factor = scale == nullptr ? 1 : *static_cast<const float*>(scale->data);
  const int n_embd = model.spec.n_embd;
  const auto n_in = static_cast<std::size_t>(model.spec.layer(layer).output_size());
  std::vector<float> slices(n_in * static_cast<std::size_t>(n_embd));
  constexpr int kRows = 64;
  parallel_for((n_embd + kRows - 1) / kRows, [&](int block) {
    std::vector<float> row(n_in);
    for (int e = block * kRows; e < std::min(n_embd, (block + 1) * kRows); ++e) {
      dequantize_row(wo, e, row.data());
      for (std::size_t i = 0; i < n_in; ++i) {
        slices[i * static_cast<std::size_t>(n_embd) + static_cast<std::size_t>(e)] = factor * row[i];
      }
    }
  });
  return slices;
}

}  // namespace winnow
