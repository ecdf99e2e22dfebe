#include "kernels/recurrences/short_convolution.h"

#include <algorithm>
#include <cmath>

namespace winnow::kernels {

namespace {

// Computes a convolution. kGated: rows consist of b, c and x; else of x, and SiLU is applied to the result.
template <bool kGated>
void convolve(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
              float* after, float* y, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kBlock = 16;  // channels at a time: the compiler vectorises loops over them
  const std::int64_t n = convolution.n_channels;
  const int n_taps = convolution.n_taps, n_past = n_taps - 1;
  for (std::int64_t begin = first; begin < last; begin += kBlock) {
    const std::int64_t n_block = std::min(kBlock, last - begin);
    float past[kMaxTaps][kBlock] = {};  // the last one is the present row
    float weights[kMaxTaps][kBlock] = {};
    float biases[kBlock] = {};
    if (!kGated && convolution.biases != nullptr) std::copy_n(convolution.biases + begin, n_block, biases);
    for (int tap = 0; tap < n_taps; ++tap) {
      for (std::int64_t i = 0; i < n_block; ++i) {
        weights[tap][i] = convolution.weights[(begin + i) * n_taps + tap];
        if (tap < n_past) past[tap][i] = before[tap * n + begin + i];
      }
    }
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const float* row = rows + r * (kGated ? 3 * n : n) + begin;  // [b, c, x] or [x]
      for (std::int64_t i = 0; i < n_block; ++i) past[n_past][i] = kGated ? row[i] * row[2 * n + i] : row[i];
      float sum[kBlock];
      std::copy_n(biases, kBlock, sum);
      for (int tap = 0; tap < n_taps; ++tap) {
        for (std::int64_t i = 0; i < kBlock; ++i) sum[i] += weights[tap][i] * past[tap][i];
      }
      for (std::int64_t i = 0; i < n_block; ++i) {
        y[r * n + begin + i] = kGated ? row[n + i] * sum[i] : sum[i] / (1.0F + std::exp(-sum[i]));
      }
      for (int tap = 0; tap < n_past; ++tap) std::copy_n(past[tap + 1], kBlock, past[tap]);
    }
    for (int tap = 0; tap < n_past; ++tap) {
      for (std::int64_t i = 0; i < n_block; ++i) after[tap * n + begin + i] = past[tap][i];
    }
  }
}

}  // namespace

void short_convolution(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
                       float* after, float* y, std::int64_t first, std::int64_t last) {
  convolve<true>(convolution, rows, n_rows, before, after, y, first, last);
}

void silu_convolution(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
                      float* after, float* y, std::int64_t first, std::int64_t last) {
  convolve<false>(convolution, rows, n_rows, before, after, y, first, last);
}

}  // namespace winnow::kernels
