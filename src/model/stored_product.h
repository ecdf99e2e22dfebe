// Products of the file's own weights, by winnow's kernels of 8-bit integers or by ggml's.
#pragma once

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// Whether the weight's type has a product of ours on this processor (kernels/products/quantised_product.h).
bool has_int8_product(const ggml_tensor* weight);

// The rows that a product quantised last: the next one of the same rows takes them, too.
struct QuantisedRows {
  ggml_tensor* x = nullptr;
  ggml_tensor* quantised = nullptr;
};

// A node y [n_out, n_rows] = W x, weight [n_in, n_out] of any type of ggml, x [n_in, n_rows] float32. Beside quantised
// weights x is rounded to 8 bits by blocks; a row's bits are then the same alone and in any batch. `compute` runs the
// graph.
ggml_tensor* stored_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x, Compute& compute,
                            QuantisedRows& rows);

}  // namespace winnow
