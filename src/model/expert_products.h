// Products of a mixture of experts: every row goes through the few experts that its router has chosen.
#pragma once

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// A node [n, n_rows] = sum over the experts of a row of shares [n_used, n_rows] times outputs [n, n_used, n_rows], all
// float32 and contiguous, always in the same order.
ggml_tensor* weighted_sum(ggml_context* context, ggml_tensor* outputs, ggml_tensor* shares);

}  // namespace winnow
