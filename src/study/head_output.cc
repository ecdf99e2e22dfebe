#include "study/head_output.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "eviction/evidence/stored_rows.h"
#include "eviction/refit/matrix_product.h"
#include "kernels/attention/softmax_row.h"
#include "study/calibrate/marginal_utility.h"

namespace winnow {

HeadOutput::HeadOutput(const LayerView& view, int kv_head, std::int32_t n_context, int n_rows)
    : shape_(view.shape.of_head(kv_head)), n_rows_(n_rows), n_later_(view.n_tokens - n_context) {
  const kernels::HeadEntries& entries = view.heads[static_cast<std::size_t>(kv_head)];
  const int n_group = shape_.n_group;
  if (shape_.spec.sink_logits != nullptr)
    sink_logits_.assign(shape_.spec.sink_logits, shape_.spec.sink_logits + n_group);
  for (int row = 0; row < n_rows; ++row) {
    const float* q = view.window_q + (std::ptrdiff_t{view.n_window_rows - n_rows + row} * view.n_head +
                                      std::ptrdiff_t{kv_head} * n_group) *
                                         shape_.key_dim;
    q_.insert(q_.end(), q, q + std::ptrdiff_t{n_group} * shape_.key_dim);
  }
  std::vector<float> keys = load_rows(shape_, entries, kernels::RowKind::kKey, view.n_tokens);
  std::vector<float> values = load_rows(shape_, entries, kernels::RowKind::kValue, view.n_tokens);
  later_keys_.assign(keys.begin() + std::ptrdiff_t{n_context} * shape_.key_dim, keys.end());
  later_values_.assign(values.begin() + std::ptrdiff_t{n_context} * shape_.value_dim, values.end());
  for (int g = 0; g < n_group; ++g) gram_.push_back(projection_gram(view, kv_head * n_group + g));
  full_ = output(n_context, keys.data(), values.data());
  square_ = mean_square(full_);
}

std::vector<float> HeadOutput::output(std::int32_t n, const float* keys, const float* values) const {
  const int n_q = n_rows_ * shape_.n_group, d = shape_.key_dim, width = shape_.value_dim, n_all = n + n_later_;
  std::vector<float> weights(static_cast<std::size_t>(n_q) * static_cast<std::size_t>(n_all), 0.0F);
  if (n > 0) multiply(n_q, n, d, shape_.spec.scale, {q_.data(), d}, {keys, d, true}, 0.0F, weights.data(), n_all);
  multiply(n_q, n_later_, d, shape_.spec.scale, {q_.data(), d}, {later_keys_.data(), d, true}, 0.0F, weights.data() + n,
           n_all);
  for (int i = 0; i < n_q; ++i) {
    float* row = weights.data() + std::ptrdiff_t{i} * n_all;
    const int n_seen = n_all - n_rows_ + 1 + i / shape_.n_group;  // the last row sees all
    const float sink = sink_logits_.empty() ? -std::numeric_limits<float>::infinity()
                                            : sink_logits_[static_cast<std::size_t>(i % shape_.n_group)];
    kernels::softmax_row(row, n_seen, shape_.spec.soft_cap, sink);
    std::fill(row + n_seen, row + n_all, 0.0F);
  }
  std::vector<float> out(static_cast<std::size_t>(n_q) * static_cast<std::size_t>(width), 0.0F);
  multiply(n_q, width, n_later_, 1.0F, {weights.data() + n, n_all}, {later_values_.data(), width}, 0.0F, out.data(),
           width);
  if (n > 0) multiply(n_q, width, n, 1.0F, {weights.data(), n_all}, {values, width}, 1.0F, out.data(), width);
  return out;
}

double HeadOutput::mean_square(const std::vector<float>& outputs) const {
  const auto width = static_cast<std::size_t>(shape_.value_dim), n_group = gram_.size();
  double sum = 0;
  for (std::size_t i = 0; i * width < outputs.size(); ++i) {
    sum += projected_square(gram_[i % n_group], std::span(outputs).subspan(i * width, width));
  }
  return sum / n_rows_;
}

double HeadOutput::error(std::int32_t n, const float* keys, const float* values) const {
  std::vector<float> change = output(n, keys, values);
  for (std::size_t i = 0; i < change.size(); ++i) change[i] -= full_[i];
  return mean_square(change);
}

}  // namespace winnow
