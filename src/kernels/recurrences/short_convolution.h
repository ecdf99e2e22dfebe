// Causal convolutions over a few rows, channel by channel: LFM2's, gated before and after, y = c * (w (*) (b * x)), and
// DeltaNet's and Mamba-2's, y = silu(w (*) x + b).
#pragma once

#include <cstdint>

namespace winnow::kernels {

inline constexpr int kMaxTaps = 16;

// The parameters of a layer's convolution.
struct ShortConvolution {
  const float* weights;           // [n_channels][n_taps], the last tap for the present row
  const float* biases = nullptr;  // [n_channels], or null; for silu_convolution alone
  std::int64_t n_channels;
  int n_taps;  // 2 to kMaxTaps
};

// Computes channels [first, last) of n_rows rows of one sequence.
//   rows: [n_rows][3][n_channels], b, c and x; y: [n_rows][n_channels]
//   before, after: [n_taps - 1][n_channels], b * x of the rows before and of the last ones, oldest first; may be the
//   same memory
void short_convolution(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
                       float* after, float* y, std::int64_t first, std::int64_t last);
// Computes channels [first, last) with SiLU, from rows [n_rows][n_channels] that consist of x alone; before, after: x
// of the rows before and of the last ones.
void silu_convolution(const ShortConvolution& convolution, const float* rows, std::int64_t n_rows, const float* before,
                      float* after, float* y, std::int64_t first, std::int64_t last);

}  // namespace winnow::kernels
