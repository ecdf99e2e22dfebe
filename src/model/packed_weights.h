// One layer's weight matrices, converted for products with many rows (prefill) by oneDNN.
//
// The layers of a prompt are run one after the other, so one PackedLayer's memory serves them all in turn; the cost of
// converting is shared by the whole prompt, and any weight type of the file prefills at the speed of bf16.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

struct ggml_context;
struct ggml_tensor;

namespace winnow {

class Compute;

enum class PackedType { kF32, kBF16 };

// Whether the processor has instructions that multiply bf16 (AVX512-BF16, AMX) and oneDNN uses them: DNNL_MAX_CPU_ISA
// may keep it from that.
bool multiplies_bf16();
// Whether it does so by tiles (AMX), at more than the speed of 8-bit products on vectors.
bool multiplies_bf16_by_tiles();
// bf16 where the processor multiplies bf16 and the file's weights are not float32; else float32.
PackedType packed_type_for(const ggml_tensor* weight);

// y = W x for many rows. Owned by its PackedLayer.
struct PackedMatrix;

class PackedLayer {
 public:
  // type: of all matrices; nothing: packed_type_for each.
  explicit PackedLayer(std::optional<PackedType> type = std::nullopt);
  ~PackedLayer();
  PackedLayer(const PackedLayer&) = delete;
  PackedLayer& operator=(const PackedLayer&) = delete;

  // Converts these matrices [n_in, n_out] and forgets the ones before. Products will be taken over up to max_rows rows.
  void pack(std::span<ggml_tensor* const> weights, int max_rows, Compute& compute);
  // Makes ready for products of n_rows rows; call it before a graph of that many rows runs.
  void prepare(int n_rows);

  // Null for a weight that was not packed.
  const PackedMatrix* find(const ggml_tensor* weight) const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// A node y [n_out, n_rows] = W x, x [n_in, n_rows] contiguous float32: every thread multiplies its share of the rows.
ggml_tensor* packed_product(ggml_context* context, const PackedMatrix& matrix, ggml_tensor* x);

}  // namespace winnow
