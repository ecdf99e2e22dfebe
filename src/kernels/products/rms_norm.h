// Root mean square normalisation (arXiv 1910.07467).
#pragma once

namespace winnow::kernels {

// Computes y [n] = x [n] / sqrt(mean of x^2 + eps), times weight [n] unless that is null; y may be x. The root is taken
// in double, so a result only has the error of its three roundings to float32.
void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y);

}  // namespace winnow::kernels
