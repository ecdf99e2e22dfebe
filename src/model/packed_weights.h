// A layer's weight matrices, converted for products with many rows (prefill) by oneDNN.
//
// The layers of a prompt run one after the other, so that one PackedLayer's memory serves them all in turn. The whole
// prompt shares the cost of converting, and any weight type of the file prefills at the speed of bf16.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

// The type to which matrices are converted.
enum class PackedType { kF32, kBF16 };

// Returns true if the processor has instructions that multiply bf16 (AVX512-BF16, AMX) and oneDNN uses them;
// DNNL_MAX_CPU_ISA may keep it from that.
bool multiplies_bf16();
// Returns true if it does so by tiles (AMX), which are faster than 8-bit products on vectors.
bool multiplies_bf16_by_tiles();
// Returns bf16 if the processor multiplies bf16 and the file's weights are not float32, else float32.
PackedType packed_type_for(const ggml_tensor* weight);

// A converted matrix W, for y = W x of many rows. Owned by its PackedLayer.
struct PackedMatrix;

// The converted matrices of one layer at a time.
class PackedLayer {
 public:
  // Takes the type of all matrices; not set: packed_type_for each.
  explicit PackedLayer(std::optional<PackedType> type = std::nullopt);
  ~PackedLayer();
  PackedLayer(const PackedLayer&) = delete;
  PackedLayer& operator=(const PackedLayer&) = delete;

  // Converts these matrices [n_in, n_out] for products of up to max_rows rows, and forgets those before.
  void pack(std::span<ggml_tensor* const> weights, int max_rows, Compute& compute);
  // Prepares products of n_rows rows. Call it before a graph of that many rows runs.
  void prepare(int n_rows);

  // Returns the converted matrix of a weight, or null for one that was not converted.
  const PackedMatrix* find(const ggml_tensor* weight) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Returns a node y [n_out, n_rows] = W x for contiguous float32 x [n_in, n_rows]. Every thread multiplies a part of the
// rows.
ggml_tensor* packed_product(ggml_context* context, const PackedMatrix& matrix, ggml_tensor* x);

}  // namespace winnow
