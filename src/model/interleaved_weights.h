// Weight matrices with interleaved rows (kernels/products/interleaved_rows.h), in memory of their own. On processors
// whose products take them so, a step of decoding is bound by the memory's speed instead of the processor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/products/interleaved_rows.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class GgufFile;

// Returns the layout of a matrix's rows in its data.
kernels::WeightLayout layout_of(const ggml_tensor* weight);

// Returns row i as the file has it: a pointer into the matrix, or into `row`, where it is put together.
const std::byte* stored_row(const ggml_tensor* weight, std::int64_t i, std::vector<std::byte>& row);

// The owner of interleaved matrices.
class InterleavedWeights {
 public:
  // Returns true if a matrix, or every one of experts' matrices, can be interleaved: it has a format with products on
  // this processor, and its rows fill whole panels.
  static bool takes(const ggml_tensor* weight);

  // Returns the bytes of those of `matrices` that can be interleaved; null ones are skipped.
  static std::size_t bytes(std::span<ggml_tensor** const> matrices);

  // Replaces each of these by one with interleaved rows, on n_threads threads, and reports to the file that its own
  // bytes will not be needed soon. Replaces none of them if the operating system refuses the memory.
  void replace(std::span<ggml_tensor** const> matrices, const GgufFile& file, int n_threads);

 private:
  struct Part;  // the matrices of one call
  std::vector<std::shared_ptr<Part>> parts_;
};

}  // namespace winnow
