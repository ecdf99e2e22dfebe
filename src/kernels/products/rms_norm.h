// Root mean square normalisation (arXiv 1910.07467).
#pragma once

namespace winnow::kernels {

// y [n] = x [n] / sqrt(mean of x^2 + eps), times weight [n] where that is not null; y may be x. The root is taken in
// double: a result is off by its own roundings to float32, three of them, alone.
void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y);

}  // namespace winnow::kernels
