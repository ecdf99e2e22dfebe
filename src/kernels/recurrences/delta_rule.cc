#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrences/delta_rule.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/recurrences/delta_rule.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void normalise(const float* x, std::int64_t n, float eps, float factor, float* out) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  const auto scale = hn::Set(d, factor / std::sqrt(hn::GetLane(hn::SumOfLanes(d, sum)) + eps));
  for (std::int64_t i = 0; i < n; i += kLanes) hn::StoreU(hn::Mul(scale, hn::LoadU(d, x + i)), d, out + i);
}

// Updates one row of the state, which holds one number of a value for each of the n numbers of a key. Returns the
// query's product with it.
HWY_INLINE float step(float* state, const float* k, const float* q, std::int64_t n, float g, float b, float v) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const auto decay = hn::Set(d, g);
  auto held = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    held = hn::MulAdd(hn::Mul(decay, hn::LoadU(d, state + i)), hn::LoadU(d, k + i), held);
  }
  const auto change = hn::Set(d, b * (v - hn::GetLane(hn::SumOfLanes(d, held))));
  auto read = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto next = hn::MulAdd(change, hn::LoadU(d, k + i), hn::Mul(decay, hn::LoadU(d, state + i)));
    hn::StoreU(next, d, state + i);
    read = hn::MulAdd(next, hn::LoadU(d, q + i), read);
  }
  return hn::GetLane(hn::SumOfLanes(d, read));
}

void delta_rule(const DeltaRule& rule, const float* qkv, const float* alpha, const float* beta, std::int64_t n_rows,
                const float* before, float* after, float* out, std::int64_t head) {
  static_assert(kDeltaUnit % hn::MaxLanes(hn::ScalableTag<float>()) == 0);
  const std::int64_t d = rule.head_dim, n_heads = rule.n_value_heads;
  const std::int64_t row_size = (2 * rule.n_key_heads + n_heads) * d, key_head = head % rule.n_key_heads;
  float* state = after + head * d * d;
  if (before != after) std::copy_n(before + head * d * d, d * d, state);
  std::vector<float> q(static_cast<std::size_t>(d)), k(q.size());
  const auto softplus = [](float x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const float* row = qkv + r * row_size;
    normalise(row + key_head * d, d, rule.eps, 1.0F / std::sqrt(static_cast<float>(d)), q.data());
    normalise(row + (rule.n_key_heads + key_head) * d, d, rule.eps, 1, k.data());
    const float* v = row + (2 * rule.n_key_heads + head) * d;
    const std::int64_t at = r * n_heads + head;
    const float g = std::exp(rule.decay[head] * softplus(alpha[at] + rule.decay_bias[head]));
    const float b = 1.0F / (1.0F + std::exp(-beta[at]));
    for (std::int64_t j = 0; j < d; ++j) out[at * d + j] = step(state + j * d, k.data(), q.data(), d, g, b, v[j]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(delta_rule);

void delta_rule(const DeltaRule& rule, const float* qkv, const float* alpha, const float* beta, std::int64_t n_rows,
                const float* before, float* after, float* out, std::int64_t head) {
  HWY_DYNAMIC_DISPATCH(delta_rule)(rule, qkv, alpha, beta, n_rows, before, after, out, head);
}

}  // namespace winnow::kernels
#endif
