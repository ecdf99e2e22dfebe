#include "kernels/short_convolution.h"

#include <algorithm>

namespace winnow::kernels {

void short_convolution(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
                       float* after, float* y, std::int64_t first, std::int64_t last) {
  constexpr std::int64_t kBlock = 16;  // channels at a time: loops over them become vectors
  const std::int64_t n = convolution.n_channels;
  const int n_taps = convolution.n_taps, n_past = n_taps - 1;
  for (std::int64_t begin = first; begin < last; begin += kBlock) {
    const std::int64_t n_block = std::min(kBlock, last - begin);
    float past[kMaxTaps][kBlock] = {};  // the last taps is the present row
    float weights[kMaxTaps][kBlock] = {};
    for (int tap = 0; tap < n_taps; ++tap) {
      for (std::int64_t i = 0; i < n_block; ++i) {
        weights[tap][i] = convolution.weights[(begin + i) * n_taps + tap];
        if (tap < n_past) past[tap][i] = before[tap * n + begin + i];
      }
    }
    for (std::int64_t r = 0; r < n_rows; ++r) {
      const float* b = rows + r * 3 * n + begin;
      const float* c = b + n;
      const float* x = c + n;
      for (std::int64_t i = 0; i < n_block; ++i) past[n_past][i] = b[i] * x[i];
      float sum[kBlock] = {};
      for (int tap = 0; tap < n_taps; ++tap) {
        for (std::int64_t i = 0; i < kBlock; ++i) sum[i] += weights[tap][i] * past[tap][i];
      }
      for (std::int64_t i = 0; i < n_block; ++i) y[r * n + begin + i] = c[i] * sum[i];
      for (int tap = 0; tap < n_past; ++tap) std::copy_n(past[tap + 1], kBlock, past[tap]);
    }
    for (int tap = 0; tap < n_past; ++tap) {
      for (std::int64_t i = 0; i < n_block; ++i) after[tap * n + begin + i] = past[tap][i];
    }
  }
}

}  // namespace winnow::kernels
