// Loads the same place of several weight rows into a vector: from rows in the file's order, one after the other, or
// from interleaved rows (interleaved_rows.h). Included after Vectors is defined, like everything that
// int8_product-inl.h includes.
#pragma once

#include "kernels/products/interleaved_rows.h"

namespace winnow::kernels {
namespace {

using Int = Vectors::Int;
using Float = Vectors::Float;
inline constexpr int kLanes = Vectors::kLanes;

// Prefetches weights a few lines at a time: a core can have few lines in flight, and more of them delay every other
// read. (Ahead in read_ahead.h counts its lines, with which q4_K took up to a tenth longer.)
struct ReadAhead {
  const std::byte *next, *last;
  bool to_first_level;
  HWY_INLINE void send_for(int n_lines) {
#pragma GCC unroll 4
    for (int i = 0; i < n_lines; ++i) fetch_line(std::min(next + 64 * i, last), to_first_level);
    next += 64 * n_lines;
  }
};

// Sets out[i] to bytes [4 i, 4 i + 4) of every row; reads 16 bytes of each row.
HWY_INLINE void load_16(const std::byte* row, std::size_t stride, Int (&out)[4]) {
  const Int a = Vectors::every_fourth(row, stride);
  const Int b = Vectors::every_fourth(row + stride, stride);
  const Int c = Vectors::every_fourth(row + 2 * stride, stride);
  const Int d = Vectors::every_fourth(row + 3 * stride, stride);
  const Int ab_low = Vectors::low_32(a, b), ab_high = Vectors::high_32(a, b);
  const Int cd_low = Vectors::low_32(c, d), cd_high = Vectors::high_32(c, d);
  out[0] = Vectors::low_64(ab_low, cd_low);
  out[1] = Vectors::high_64(ab_low, cd_low);
  out[2] = Vectors::low_64(ab_high, cd_high);
  out[3] = Vectors::high_64(ab_high, cd_high);
}

// A block of each of kLanes rows in the file's order, which `load` and `lone` read.
template <WeightBlocks blocks>
class FileRows {
 public:
  FileRows(const ProductTask& task, std::int64_t first_row, std::int64_t block, ReadAhead& ahead)
      : row_(task.weights + static_cast<std::size_t>(first_row) * task.weight_stride +
             static_cast<std::size_t>(block) * kInfo.n_bytes),
        stride_(task.weight_stride),
        ahead_(ahead) {}

  // Sets out[i] to dword first + i of the block of every row. first + 3 is within the block.
  HWY_INLINE void load(int first, Int (&out)[4]) {
    ahead_.send_for(4);
    load_16(row_ + kInfo.n_head + 4 * first, stride_, out);
  }
  HWY_INLINE Int dword(int i) const {
    constexpr int kLast = static_cast<int>(kInfo.n_bytes / 4) - 4;  // the last dword from which 16 bytes can be read
    Int out[4];
    load_16(row_ + kInfo.n_head + 4 * std::min(i, kLast), stride_, out);
    return out[i - std::min(i, kLast)];
  }
  // Returns the word or byte that is in no dword; the bits above it are undefined.
  HWY_INLINE Int lone() const {
    Int bytes[4];
    load_16(kInfo.n_head > 0 ? row_ : row_ + kInfo.n_bytes - 16, stride_, bytes);
    return kInfo.n_head > 0 ? bytes[0] : Vectors::shift_right(bytes[3], 16);
  }
  HWY_INLINE void advance() { row_ += kInfo.n_bytes; }

 private:
  static constexpr const WeightBlocksInfo& kInfo = weight_blocks_info(blocks);
  const std::byte* row_;
  std::size_t stride_;
  ReadAhead& ahead_;
};

template <WeightBlocks blocks>
class InterleavedRows {
 public:
  InterleavedRows() = default;
  InterleavedRows(const ProductTask& task, std::int64_t first_row, std::int64_t block, ReadAhead& ahead)
      : ahead_(&ahead) {
    const InterleavedPanel shape(blocks, task.n_in);
    const std::int64_t panel = first_row / kInterleavedRows;
    const auto lane = static_cast<std::size_t>(first_row % kInterleavedRows);
    const std::byte* begin = task.weights + static_cast<std::size_t>(panel) * shape.bytes();
    dwords_ = begin + shape.dwords(block) + 4 * lane;
    lone_ = begin + shape.lone(block) + kLone * lane;
  }

  HWY_INLINE void load(int first, Int (&out)[4]) {
    ahead_->send_for(kLanes / 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) out[i] = dword(first + i);
  }
  HWY_INLINE Int dword(int i) const {
    return Vectors::load_any(dwords_ +
                             static_cast<std::ptrdiff_t>(dword_place(blocks, static_cast<std::size_t>(i))) * kDword);
  }
  HWY_INLINE Int lone() const {
    static_assert(kLone > 0);
    return kLone == 2 ? Vectors::load_words(lone_) : Vectors::load_bytes(lone_);
  }
  HWY_INLINE void advance() {
    dwords_ += static_cast<std::ptrdiff_t>(weight_blocks_info(blocks).n_bytes / 4) * kDword;
    lone_ += kLone * kInterleavedRows;
  }

 private:
  static constexpr std::ptrdiff_t kDword = 4 * kInterleavedRows;
  static constexpr std::size_t kLone = weight_blocks_info(blocks).n_bytes % 4;
  const std::byte *dwords_ = nullptr, *lone_ = nullptr;
  ReadAhead* ahead_ = nullptr;
};

}  // namespace
}  // namespace winnow::kernels
