// Tensors that a model's file does not have as such: slices of its tensors, and copies in another order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// Slices of fused tensors, each a tensor of its own that points into the file's.
class Views {
 public:
  explicit Views(int n_layer);

  // Returns outputs first, ..., first + n - 1 of a matrix [n_in, n_out], of every one of experts' matrices, or of a
  // bias [n_out]. Returns null for null.
  ggml_tensor* slice(ggml_tensor* whole, std::int64_t first, std::int64_t n);
  // Returns numbers first, ..., first + n - 1 of every row. Throws Error(kUnsupported) if they begin or end within a
  // block of the type.
  ggml_tensor* columns(ggml_tensor* whole, std::int64_t first, std::int64_t n);
  // Returns [n_in, n_out, n] as one matrix [n_in, n_out * n].
  ggml_tensor* rows(ggml_tensor* whole);

  std::shared_ptr<ggml_context> context() const { return context_; }

 private:
  std::shared_ptr<ggml_context> context_;
};

// Copies of matrices in another order than the file's, in memory of their own.
class Copies {
 public:
  // Returns heads' matrices [n, n_in, n_head] as [n_in, n * n_head], so that a row makes an output. Quantised numbers
  // become f16.
  ggml_tensor* transposed(const ggml_tensor* heads);
  // Returns a vector of these numbers, in the same kind of memory as another tensor.
  ggml_tensor* constants(std::span<const float> numbers, const ggml_tensor* beside);

  std::vector<std::shared_ptr<ggml_context>> all() && { return std::move(all_); }

 private:
  // Adds a tensor [n_in, n_out] in the same kind of memory as another.
  ggml_tensor* make(ggml_type type, std::int64_t n_in, std::int64_t n_out, const ggml_tensor* beside);

  std::vector<std::shared_ptr<ggml_context>> all_;
};

}  // namespace winnow
