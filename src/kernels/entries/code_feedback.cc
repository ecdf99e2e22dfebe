#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entries/code_feedback.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "kernels/entries/code_feedback.h"
#include "kernels/entries/rotated_codes.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMostMagnitudes = 8;
constexpr int kSteps = 8;  // steps whose errors are subtracted together from later numbers, which are then loaded and
                           // stored once for all of them

void choose_with_feedback(const CodeFeedback& feedback, std::span<const float> magnitudes, const float* scales,
                          float* y, std::int32_t* index) {
  const hn::CappedTag<float, kFeedbackRows> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const int n = feedback.head_dim(), n_levels = static_cast<int>(magnitudes.size());
  float bounds[kMostMagnitudes];  // half-way between neighbours
  for (int i = 0; i + 1 < n_levels; ++i) {
    bounds[i] = (magnitudes[static_cast<std::size_t>(i)] + magnitudes[static_cast<std::size_t>(i + 1)]) / 2;
  }
  for (int row = 0; row < kFeedbackRows; row += lanes) {
    const auto at = [&](int step) { return std::ptrdiff_t{step} * kFeedbackRows + row; };
    for (int begin = 0; begin < n; begin += kSteps) {
      V errors[kSteps];
      const int end = std::min(n, begin + kSteps);
      for (int step = begin; step < end; ++step) {
        V x = hn::LoadU(d, y + at(step));
        for (int s = begin; s < step; ++s) {
          x = hn::NegMulAdd(errors[s - begin], hn::Set(d, feedback.shares(s)[step]), x);
        }
        hn::StoreU(x, d, y + at(step));
        const V scale = hn::LoadU(d, scales + at(step)), magnitude = hn::Abs(x);
        V level = hn::Set(d, magnitudes[0]);
        auto chosen = hn::Zero(di);
        for (int i = 0; i + 1 < n_levels; ++i) {
          const auto is_above = hn::Gt(magnitude, hn::Mul(scale, hn::Set(d, bounds[i])));
          level = hn::IfThenElse(is_above, hn::Set(d, magnitudes[static_cast<std::size_t>(i + 1)]), level);
          chosen = hn::Sub(chosen, hn::VecFromMask(di, hn::RebindMask(di, is_above)));  // a true mask is -1
        }
        hn::StoreU(chosen, di, index + at(step));
        errors[step - begin] = hn::Sub(x, hn::CopySign(hn::Mul(level, scale), x));
      }
      if (end - begin < kSteps) break;  // the last steps
      for (int step = end; step < n; ++step) {
        V x = hn::LoadU(d, y + at(step));
        for (int s = 0; s < kSteps; ++s) {
          x = hn::NegMulAdd(errors[s], hn::Set(d, feedback.shares(begin + s)[step]), x);
        }
        hn::StoreU(x, d, y + at(step));
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {
namespace {

constexpr double kDamping = 0.1;  // as a multiple of the mean of the diagonal

// Returns H M H' of a symmetric matrix [n][n], by the rotation of rows.
std::vector<double> rotated(std::span<const double> moment, int n) {
  std::vector<double> m(moment.begin(), moment.end());
  std::vector<float> row(static_cast<std::size_t>(n));
  for (int side = 0; side < 2; ++side) {
    for (int i = 0; i < n; ++i) {
      double* of_row = m.data() + std::ptrdiff_t{i} * n;
      std::transform(of_row, of_row + n, row.begin(), [](double x) { return static_cast<float>(x); });
      rotate_row(row.data(), row.data(), n);
      std::copy(row.begin(), row.end(), of_row);
    }
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < i; ++j)
        std::swap(m[static_cast<std::size_t>(i * n + j)], m[static_cast<std::size_t>(j * n + i)]);
    }
  }
  return m;
}

}  // namespace

std::size_t CodeFeedback::bytes_for(int head_dim) {
  const auto n = static_cast<std::size_t>(head_dim);
  return n * n * sizeof(float) + n * sizeof(std::int32_t);
}

std::optional<CodeFeedback> CodeFeedback::of(std::span<const double> moment, int head_dim) {
  assert(std::ssize(moment) == std::int64_t{head_dim} * head_dim);
  const int n = head_dim;
  const std::vector<double> m = rotated(moment, n);
  const auto in = [n](int i, int j) { return static_cast<std::size_t>(i * n + j); };
  double trace = 0;
  for (int i = 0; i < n; ++i) trace += m[in(i, i)];
  if (!(trace > 0) || !std::isfinite(trace)) return std::nullopt;
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return m[in(a, a)] > m[in(b, b)]; });

  // M = U D U' with ones on the diagonal of the upper triangle U, computed from the last column on. Then e'M e is the
  // sum over steps of D_j r_j^2, r = U'e. Each summand is least if r_j is the rounding error of the row's number plus
  // the contribution of earlier errors: of y_j = x_j - sum over i < j of (U^-1)_ij r_i.
  std::vector<double> u(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const auto row = static_cast<std::size_t>(i);
    for (int j = 0; j < n; ++j) u[in(i, j)] = m[in(order[row], order[static_cast<std::size_t>(j)])];
    u[in(i, i)] += kDamping * trace / n;
  }
  for (int j = n - 1; j >= 0; --j) {
    const double pivot = u[in(j, j)];
    if (!(pivot > 0) || !std::isfinite(pivot)) return std::nullopt;
    for (int i = 0; i < j; ++i) {
      const double share = u[in(i, j)] / pivot;
      for (int k = 0; k <= i; ++k) u[in(k, i)] -= share * u[in(k, j)];
    }
    for (int i = 0; i < j; ++i) u[in(i, j)] /= pivot;
  }
  std::vector<double> inverse(u.size());
  for (int i = 0; i < n; ++i) {
    inverse[in(i, i)] = 1;
    for (int k = i; k < n; ++k) {
      const double factor = inverse[in(i, k)];
      for (int j = k + 1; j < n; ++j) inverse[in(i, j)] -= factor * u[in(k, j)];
    }
  }
  std::vector<float> shares(u.size());
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) shares[in(i, j)] = static_cast<float>(inverse[in(i, j)]);
  }
  return CodeFeedback(std::move(order), std::move(shares));
}

HWY_EXPORT(choose_with_feedback);

void choose_with_feedback(const CodeFeedback& feedback, std::span<const float> magnitudes, const float* scales,
                          float* y, std::int32_t* index) {
  assert(magnitudes.size() <= 8);
  HWY_DYNAMIC_DISPATCH(choose_with_feedback)(feedback, magnitudes, scales, y, index);
}

}  // namespace winnow::kernels
#endif
