// What the products of few rows are made of for each instruction set: how quantised rows lie in memory, and the
// functions that a file for one instruction set defines (few_rows_*.cc). few_rows_product.cc chooses among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/few_rows_product.h"

namespace winnow::kernels {

inline constexpr std::int64_t kFewRowsBlock = 32;  // numbers of a block
inline constexpr std::int64_t kFewRowsGroup = 16;  // blocks whose scales are taken together

// A quantised row: the blocks' scales, scale * sum of the block's integers, sums of its halves as the instruction set
// takes them, and the integers; zero behind the last block up to a whole group.
class FewRowsLayout {
 public:
  explicit FewRowsLayout(std::int64_t n_in)
      : n_blocks_((n_in / kFewRowsBlock + kFewRowsGroup - 1) / kFewRowsGroup * kFewRowsGroup) {}

  std::int64_t n_blocks() const { return n_blocks_; }
  std::size_t bytes() const { return static_cast<std::size_t>(n_blocks_) * (4 * sizeof(float) + kFewRowsBlock); }

  // Of a row that is written or only read.
  auto* scales(auto* row) const { return at<float>(row, 0); }
  auto* sums(auto* row) const { return at<float>(row, n_blocks_); }
  template <class HalfSum>
  auto* half_sums(auto* row) const {
    static_assert(sizeof(HalfSum) <= sizeof(float));
    return at<HalfSum>(row, 2 * n_blocks_);
  }
  auto* integers(auto* row) const { return row + 4 * sizeof(float) * n_blocks_; }

 private:
  template <class T>
  static const T* at(const std::byte* row, std::int64_t i) {
    return reinterpret_cast<const T*>(row + static_cast<std::size_t>(i) * sizeof(float));
  }
  template <class T>
  static T* at(std::byte* row, std::int64_t i) {
    return reinterpret_cast<T*>(row + static_cast<std::size_t>(i) * sizeof(float));
  }

  std::int64_t n_blocks_;
};

// As few_rows_product.h has them.
struct FewRowsKernels {
  bool (*has)(WeightBlocks blocks);
  void (*quantise)(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out);
  void (*multiply)(WeightBlocks blocks, const FewRowsTask& task);
};

// Each may be called on a processor that has the instructions.
extern const FewRowsKernels kAvx512VnniFewRows;
extern const FewRowsKernels kAvxVnniFewRows;
extern const FewRowsKernels kAvx2FewRows;

}  // namespace winnow::kernels
