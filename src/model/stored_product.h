// Products with the file's own weights, by winnow's 8-bit kernels or by ggml's.
#pragma once

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// Returns true if winnow has a product for the weight's type on this processor (kernels/products/quantised_product.h).
bool has_int8_product(const ggml_tensor* weight);

// The rows that a product quantised last, which the next product of the same rows reuses.
struct QuantisedRows {
  ggml_tensor* x = nullptr;          // the rows
  ggml_tensor* quantised = nullptr;  // the node with their 8-bit blocks
};

// Returns a node y [n_out, n_rows] = W x for a weight [n_in, n_out] of any type of ggml and float32 x [n_in, n_rows].
// With quantised weights x is rounded to 8 bits by blocks; a row's result then has the same bits alone and in any
// batch. `compute` will run the graph.
ggml_tensor* stored_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x, Compute& compute,
                            QuantisedRows& rows);

}  // namespace winnow
