#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrences/selective_scan.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/recurrences/selective_scan.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Updates one row of the state, which holds one number of a value for each of the n numbers of a key. Returns the
// query's product with it.
HWY_INLINE float scan_step(float* state, const float* key, const float* query, std::int64_t n, float decay,
                           float value) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  const auto kept = hn::Set(d, decay), added = hn::Set(d, value);
  auto read = hn::Zero(d);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto next = hn::MulAdd(added, hn::LoadU(d, key + i), hn::Mul(kept, hn::LoadU(d, state + i)));
    hn::StoreU(next, d, state + i);
    read = hn::MulAdd(next, hn::LoadU(d, query + i), read);
  }
  return hn::GetLane(hn::SumOfLanes(d, read));
}

void selective_scan(const SelectiveScan& scan, const float* rows, const float* steps, std::int64_t n_rows,
                    const float* before, float* after, float* out, std::int64_t head) {
  static_assert(kScanUnit % hn::MaxLanes(hn::ScalableTag<float>()) == 0);
  const std::int64_t n_key = scan.key_dim, n_value = scan.value_dim, n_heads = scan.n_value_heads;
  const std::int64_t n_values = n_heads * n_value, n_keys = scan.n_key_heads * n_key;
  const std::int64_t key_head = head / (n_heads / scan.n_key_heads), size = n_value * n_key;
  float* state = after + head * size;
  if (before != after) std::copy_n(before + head * size, size, state);
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const float* x = rows + r * (n_values + 2 * n_keys) + head * n_value;
    const float* key = rows + r * (n_values + 2 * n_keys) + n_values + key_head * n_key;
    const float raw = steps[r * n_heads + head] + scan.step_bias[head];
    const float step = raw > 20 ? raw : std::log1p(std::exp(raw));
    const float decay = std::exp(step * scan.decay[head]);
    float* y = out + r * n_values + head * n_value;
    for (std::int64_t j = 0; j < n_value; ++j) {
      y[j] = scan_step(state + j * n_key, key, key + n_keys, n_key, decay, step * x[j]) + scan.skip[head] * x[j];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(selective_scan);

void selective_scan(const SelectiveScan& scan, const float* rows, const float* steps, std::int64_t n_rows,
                    const float* before, float* after, float* out, std::int64_t head) {
  HWY_DYNAMIC_DISPATCH(selective_scan)(scan, rows, steps, n_rows, before, after, out, head);
}

}  // namespace winnow::kernels
#endif
