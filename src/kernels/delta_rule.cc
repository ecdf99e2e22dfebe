#include "kernels/delta_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace winnow::kernels {
namespace {

// In lanes, so that the compiler makes vectors of it; always in the same order.
float dot(const float* a, const float* b, std::int64_t n) {
  float lanes[kDeltaUnit] = {};
  for (std::int64_t i = 0; i < n; i += kDeltaUnit) {
    for (int l = 0; l < kDeltaUnit; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void normalise(const float* x, std::int64_t n, float eps, float factor, float* out) {
  const float scale = factor / std::sqrt(dot(x, x, n) + eps);
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale;
}

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

void delta_rule(const DeltaRule& rule, const float* qkv, const float* alpha, const float* beta, std::int64_t n_rows,
                const float* before, float* after, float* out, std::int64_t head) {
  const std::int64_t d = rule.head_dim, n_heads = rule.n_value_heads;
  const std::int64_t row_size = (2 * rule.n_key_heads + n_heads) * d, key_head = head % rule.n_key_heads;
  float* state = after + head * d * d;
  if (before != after) std::copy_n(before + head * d * d, d * d, state);
  std::vector<float> q(static_cast<std::size_t>(d)), k(q.size());
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const float* row = qkv + r * row_size;
    normalise(row + key_head * d, d, rule.eps, 1.0F / std::sqrt(static_cast<float>(d)), q.data());
    normalise(row + (rule.n_key_heads + key_head) * d, d, rule.eps, 1, k.data());
    const float* v = row + (2 * rule.n_key_heads + head) * d;
    const std::int64_t at = r * n_heads + head;
    const float g = std::exp(rule.decay[head] * softplus(alpha[at] + rule.decay_bias[head]));
    const float b = 1.0F / (1.0F + std::exp(-beta[at]));
    for (std::int64_t j = 0; j < d; ++j) {
      float* of_value = state + j * d;  // what the state holds for value j, over the keys
      for (std::int64_t i = 0; i < d; ++i) of_value[i] *= g;
      const float change = b * (v[j] - dot(of_value, k.data(), d));
      for (std::int64_t i = 0; i < d; ++i) of_value[i] += change * k[static_cast<std::size_t>(i)];
      out[at * d + j] = dot(of_value, q.data(), d);
    }
  }
}

}  // namespace winnow::kernels
