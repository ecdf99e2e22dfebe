#include "engine/cpu/converted_layer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/compute.h"
#include "model/stored_product.h"
#include "model/weights.h"

namespace winnow {
namespace {

// Returns the type that all weights are converted to; nullopt: it is chosen for each.
std::optional<PackedType> packed_type(PrefillWeights choice) {
  if (choice == PrefillWeights::kFloat) return multiplies_bf16() ? PackedType::kBF16 : PackedType::kF32;
  if (choice == PrefillWeights::kBf16) return PackedType::kBF16;
  if (choice == PrefillWeights::kF32) return PackedType::kF32;
  return std::nullopt;
}

}  // namespace

ConvertedLayer::ConvertedLayer(PrefillWeights choice) : choice_(choice), packed_(packed_type(choice)) {}

bool ConvertedLayer::converts(const ggml_tensor* weight, std::int32_t n_rows) const {
  switch (choice_) {
    case PrefillWeights::kAuto:
      if (!has_int8_product(weight)) return n_rows >= kMinConvertedTokens;  // below, ggml's products are faster
      return multiplies_bf16_by_tiles() && n_rows >= kMinConvertedInt8Tokens;
    case PrefillWeights::kAsIs:
      return false;
    case PrefillWeights::kInt8:
      return !has_int8_product(weight);
    case PrefillWeights::kFloat:
    case PrefillWeights::kBf16:
    case PrefillWeights::kF32:
      return true;
  }
  return false;
}

bool ConvertedLayer::converts(const LayerWeights& weights, std::int32_t n_rows) const {
  const std::vector<ggml_tensor*> matrices = weights.matrices();
  return std::any_of(matrices.begin(), matrices.end(), [&](const ggml_tensor* w) { return converts(w, n_rows); });
}

PackedLayer* ConvertedLayer::use(const LayerWeights& weights, std::int32_t n_rows, int max_batch, Compute& compute) {
  std::vector<ggml_tensor*> matrices = weights.matrices();
  std::erase_if(matrices, [&](const ggml_tensor* weight) { return !converts(weight, n_rows); });
  if (matrices.empty()) return nullptr;
  if (held_ != matrices || held_batch_ != max_batch) {
    held_.clear();
    packed_.pack(matrices, max_batch, compute);
    held_ = std::move(matrices);
    held_batch_ = max_batch;
  }
  return &packed_;
}

}  // namespace winnow
