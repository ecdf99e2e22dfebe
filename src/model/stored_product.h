// Products of the file's own weights with few rows (decoding, short turns).
#pragma once

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// A node y [n_out, n_rows] = W x, weight [n_in, n_out] of any type of ggml, x [n_in, n_rows] float32: by
// kernels/quantised_product.h where it has the weight's type on this processor, else by ggml. Quantised x has 8 bits by
// blocks in both. `compute` runs the graph.
ggml_tensor* stored_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x, Compute& compute);

}  // namespace winnow
