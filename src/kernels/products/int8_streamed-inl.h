// Products of interleaved weights with the few rows of a decoding step: integers are multiplied as they are unpacked
// and never stored. A result takes the same steps as in a tile (int8_tiles-inl.h), so it has the same bits.
#pragma once

#include "kernels/products/int8_formats-inl.h"
#include "kernels/products/int8_tiles-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::ptrdiff_t kStreamAhead = 16384;  // the distance of the prefetch in bytes of weights

// Receives a chunk's unpacked blocks and adds their products with kRows rows to totals.
template <class Format, int kRows, class V = Vectors>
class StreamedProducts {
 public:
  using Totals = Float[kRows];

  // Begins a chunk. rows: [kRows][n_blocks], its blocks.
  HWY_INLINE StreamedProducts(const RowBlock* rows, std::int64_t n_blocks, Totals& totals)
      : rows_(rows), n_blocks_(n_blocks), totals_(totals) {
#pragma GCC unroll 4
    for (int slot = 0; slot < kSlots; ++slot) clear(slot);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) of_chunk_[r] = V::set_float(0);
  }

  HWY_INLINE void set_scale(std::int64_t i, Float scale) { scales_[at(i)] = scale; }
  HWY_INLINE void set_minimum(std::int64_t i, Float minimum) { minima_[at(i)] = minimum; }
  HWY_INLINE void set_factor(Float d) { factor_ = d; }
  HWY_INLINE void set_word_scale(int i, Int words) { word_scales_[i] = words; }
  HWY_INLINE void set_offset_scales(int block, Int words) { offset_scales_[block] = words; }

  HWY_INLINE void put(std::int64_t group, Int integers) {
    const std::int64_t block = group / 8, slot = block % kSlots;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Int x = broadcast_four(row(r, block).q + 4 * (group % 8));
      if constexpr (!kHasWords) {
        sums_[slot][r] = V::dot(sums_[slot][r], integers, x);
      } else {
        constexpr int kStep = kProductsOfAWord<Format>;
        Int& words = words_[slot][kStep == 8 ? 0 : group / 4 % 2][r];  // halves may alternate
        words = group % kStep == 0 ? V::pairs(integers, x) : V::add_words(words, V::pairs(integers, x));
        V::hold(words);
        if (group % kStep == kStep - 1) sums_[slot][r] = V::dot_words(sums_[slot][r], words, word_scale(group));
      }
    }
  }
  HWY_INLINE void put_wide(std::int64_t group, Int x) {
    if constexpr (!kHasWords) {
      put(group, Vectors::kDotIsSigned ? with_other_sign(x) : x);
    } else {
      const Int integers = with_other_sign(x);
      const Int absolute = V::absolute_bytes(integers);
      const std::int64_t block = group / 8, slot = block % kSlots;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Int numbers = broadcast_four(row(r, block).q + 4 * (group % 8));
        const Int words = V::pairs(absolute, V::with_signs(numbers, integers));
        sums_[slot][r] = V::dot_words(sums_[slot][r], words, V::set(0x00010001));
      }
    }
  }

  HWY_INLINE void end_blocks(std::int64_t first, int n) {
#pragma GCC unroll 2
    for (std::int64_t block = first; block < first + n; ++block) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const RowBlock& x = row(r, block);
        if constexpr (kScalesWords<Format>) {
          add_to_chunk(sums_[block % kSlots][r], r, x);
        } else {
          const Float scaled = V::multiply(difference(block, r, x.negative_sum), scales_[at(block)]);
          totals_[r] = V::multiply_add(scaled, V::set_float(x.scale), totals_[r]);
          if constexpr (Format::kHasMinimum) {
            totals_[r] = V::multiply_add(minima_[at(block)], V::set_float(x.sum), totals_[r]);
          }
        }
      }
      clear(block % kSlots);
    }
  }

  HWY_INLINE void end_halves(std::int64_t first, int n, int half) {
    if (kScalesWords<Format> && half == 0) return;  // the first half's scales are already in the sums
#pragma GCC unroll 4
    for (std::int64_t block = first; block < first + n; ++block) {
      const std::int64_t slot = block % kSlots;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const RowBlock& x = row(r, block);
        if constexpr (kScalesWords<Format>) {
          Int sum = sums_[slot][r];
          if constexpr (Format::kOffsetShift != 0) {
            sum = V::dot_words(sum, V::set(static_cast<std::int32_t>(x.negative_halves)), offset_scales_[block]);
          }
          add_to_chunk(sum, r, x);
          continue;
        }
        const Float products = difference(block, r, half == 0 ? x.negative_low : x.negative_high);
        if (half == 0) {
          scaled_[slot][r] = V::multiply(products, scales_[2 * block]);
          continue;
        }
        const Float scaled = V::multiply_add(products, scales_[2 * block + 1], scaled_[slot][r]);
        totals_[r] = V::multiply_add(scaled, V::set_float(x.scale), totals_[r]);
        if constexpr (Format::kHasMinimum) add_half_minima(totals_[r], block, x);
      }
      clear(slot);
    }
  }

  // Adds the chunk's part of the totals; called after a chunk's last block.
  HWY_INLINE void end_chunk() {
    if constexpr (!kScalesWords<Format>) return;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      totals_[r] = V::multiply_add(of_chunk_[r], factor_, totals_[r]);
      if constexpr (!Format::kHasMinimum) continue;
#pragma GCC unroll 8
      for (std::int64_t block = 0; block < kPanelBlocks; ++block) {
        const RowBlock& x = row(r, block);
        if constexpr (Format::kHalves) {
          add_half_minima(totals_[r], block, x);
        } else {
          totals_[r] = V::multiply_add(minima_[block], V::set_float(x.sum), totals_[r]);
        }
      }
    }
  }

 private:
  static constexpr int kSlots = Format::kOpenBlocks;
  // A format with blocks of 32 weights needs the scale of one block at a time.
  static constexpr std::int64_t at(std::int64_t i) { return kSlots == 1 ? 0 : i; }

  HWY_INLINE const RowBlock& row(int r, std::int64_t block) const { return rows_[r * n_blocks_ + block]; }
  // Returns the scale that words are multiplied by as they are widened.
  HWY_INLINE Int word_scale(std::int64_t group) const {
    if constexpr (!kScalesWords<Format>) return V::set(0x00010001);
    return word_scales_[Format::kHalves ? group / 4 : group / 8];
  }
  HWY_INLINE void add_to_chunk(Int sum, int r, const RowBlock& x) {
    of_chunk_[r] = V::multiply_add(V::to_float(sum), V::set_float(x.scale), of_chunk_[r]);
  }
  HWY_INLINE void add_half_minima(Float& total, std::int64_t block, const RowBlock& x) const {
    total = V::multiply_add(minima_[2 * block], V::set_float(x.sum_low), total);
    total = V::multiply_add(minima_[2 * block + 1], V::set_float(x.sum_high), total);
  }
  // Returns a block's sum of products minus the part that the offset adds.
  HWY_INLINE Float difference(std::int64_t block, int r, std::int32_t negative) const {
    Int sum = sums_[block % kSlots][r];
    if constexpr (kHasOffset<Format>) {
      sum = V::add(sum, V::shift_left(V::set(negative), Format::kOffsetShift));
    }
    return V::to_float(sum);
  }
  HWY_INLINE void clear(std::int64_t slot) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums_[slot][r] = V::set(0);
  }

  const RowBlock* rows_;
  std::int64_t n_blocks_;
  Totals& totals_;
  Int sums_[kSlots][kRows];
  Int words_[kSlots][2][kRows];
  Float scaled_[kSlots][kRows];
  Float scales_[2 * kPanelBlocks], minima_[2 * kPanelBlocks];
  // These are used with kScalesWords.
  Int word_scales_[2 * kPanelBlocks], offset_scales_[kPanelBlocks];
  Float factor_, of_chunk_[kRows];
};

// Multiplies the task's interleaved weight rows with its kRows rows.
template <class Format, int kRows>
HWY_NOINLINE void multiply_streamed(const ProductTask& task) {
  constexpr int kColumns = kInterleavedRows / kLanes;
  const std::int64_t n_blocks = task.n_in / kRowBlock;
  const std::size_t row_bytes = InterleavedPanel(Format::kBlocks, task.n_in).row_bytes();
  const auto row = [&](std::int64_t i) { return task.weights + static_cast<std::size_t>(i) * row_bytes; };
  const bool to_first_level = fetches_to_first_level();
  for (std::int64_t i = task.first; i < task.last; i += kInterleavedRows) {
    // After the task's weights the next ones are prefetched; if they are unknown, the prefetch does no harm.
    const std::byte* from = row(i) + kStreamAhead;
    if (from >= row(task.last) && task.next != nullptr) from = task.next + (from - row(task.last));
    ReadAhead ahead{from, from + kInterleavedRows * row_bytes, to_first_level};
    Float totals[kColumns][kRows];
    InterleavedRows<Format::kBlocks> weights[kColumns];
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c) {
      weights[c] = InterleavedRows<Format::kBlocks>(task, i + c * kLanes, 0, ahead);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) totals[c][r] = Vectors::set_float(0);
    }
    for (std::int64_t block = 0; block < n_blocks; block += kPanelBlocks) {
      const std::int64_t n = std::min(kPanelBlocks, n_blocks - block);
      // All lanes of the prefetched memory are used before the next part.
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c) {
        StreamedProducts<Format, kRows> products(task.rows.at(task.first_row, block, n), n, totals[c]);
        Format::unpack(weights[c], n, products);
        products.end_chunk();
      }
    }
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) Vectors::store_float(task.y + r * task.y_stride + i + c * kLanes, totals[c][r]);
    }
  }
}

template <class Format, int kRows = Vectors::kStreamedRows>
void multiply_few(const ProductTask& task) {
  if (task.n_rows == kRows) {
    multiply_streamed<Format, kRows>(task);
  } else if constexpr (kRows > 1) {
    multiply_few<Format, kRows - 1>(task);
  }
}

}  // namespace
}  // namespace winnow::kernels
