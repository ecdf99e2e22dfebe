#include "engine/evidence/key_feedback.h"

#include "kernels/entries/rotated_codes.h"
#include "kernels/statistics/query_moments.h"

namespace winnow {

bool feeds_back(const SessionOptions& options) {
  return options.eviction.evicts() && kernels::code_bits(options.key_type) > 0;
}

KeyFeedback key_feedback(const LayerView& view, const ParallelFor& parallel_for) {
  KeyFeedback feedback(static_cast<std::size_t>(view.n_kv_head));
  const auto d = static_cast<std::size_t>(view.shape.key_dim);
  const std::int64_t row = std::int64_t{view.n_head} * view.shape.key_dim;
  const int n_group = view.shape.n_group;
  if (view.n_reference_rows == 0) return feedback;
  parallel_for(view.n_kv_head, [&](int h) {
    std::vector<double> sum(d), moment(d * d);
    for (int g = 0; g < n_group; ++g) {
      kernels::add_query_moments(view.reference_q + std::ptrdiff_t{h * n_group + g} * view.shape.key_dim, row,
                                 view.n_reference_rows, view.shape.key_dim, sum, moment);
    }
    for (double& m : moment) m /= view.n_reference_rows * n_group;
    if (auto of_head = kernels::CodeFeedback::of(moment, view.shape.key_dim)) {
      feedback[static_cast<std::size_t>(h)] = std::make_shared<const kernels::CodeFeedback>(*std::move(of_head));
    }
  });
  return feedback;
}

void set_feedback(RaggedCache& cache, int layer, const KeyFeedback& feedback) {
  for (std::size_t h = 0; h < feedback.size(); ++h) cache.set_feedback(layer, static_cast<int>(h), feedback[h]);
}

std::size_t key_feedback_bytes(const CacheShape& shape) {
  std::size_t bytes = 0;
  for (const LayerShape& layer : shape.layers) {
    if (!layer.is_evictable()) continue;
    bytes += static_cast<std::size_t>(layer.n_kv_head) * kernels::CodeFeedback::bytes_for(layer.key_dim);
  }
  return kernels::code_bits(shape.key_type) > 0 ? bytes : 0;
}

}  // namespace winnow
