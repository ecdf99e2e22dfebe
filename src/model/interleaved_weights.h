// Weight matrices with interleaved rows (kernels/products/interleaved_rows.h), in memory of their own, where the
// processor's products take them so: a step of decoding then reads at the memory's speed instead of its own.
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

// How the rows of a matrix lie at its data.
kernels::WeightLayout layout_of(const ggml_tensor* weight);

// A row as the file has it: where it lies, or put together in `row`, which keeps its memory.
const std::byte* stored_row(const ggml_tensor* weight, std::int64_t i, std::vector<std::byte>& row);

class InterleavedWeights {
 public:
  // Whether a matrix, or every one of experts' matrices, can be: of a format with products on this processor, and of
  // whole panels.
  static bool takes(const ggml_tensor* weight);

  // Bytes of those of `matrices` (null: passed over) that can be.
  static std::size_t bytes(std::span<ggml_tensor** const> matrices);

  // Replaces each of them by one with interleaved rows, on n_threads threads, and tells the file that its own bytes
  // will not be needed soon. Nothing is replaced where the operating system refuses memory.
  void replace(std::span<ggml_tensor** const> matrices, const GgufFile& file, int n_threads);

 private:
  struct Part;  // the matrices of one call
  std::vector<std::shared_ptr<Part>> parts_;
};

}  // namespace winnow
