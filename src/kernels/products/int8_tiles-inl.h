// Products of tiles: a few rows quantised to 8 bits with one or two panels (int8_panels-inl.h), whose sums fit in the
// registers. Lanes are weight rows: no sum crosses the lanes of a vector, and a result takes the same steps for any
// number of rows.
#pragma once

#include "kernels/products/int8_panels-inl.h"

namespace winnow::kernels {
namespace {

HWY_INLINE Int broadcast_four(const void* from) {
  std::int32_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return Vectors::set(bits);
}

// Rows in the order of products of words: of every four numbers the first and the third, then the others.
template <int kRows>
struct WordRows {
  alignas(64) std::int16_t words[kRows][kPanelBlocks][2][kRowBlock / 2];

  template <class V = Vectors>
  HWY_INLINE WordRows(const RowBlock* rows, std::int64_t n_blocks) {
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (std::int64_t b = 0; b < n_blocks; ++b, ++rows) {
        const Int bytes = V::load(rows->q);
        V::store(words[r][b][0], V::even_bytes(bytes));
        V::store(words[r][b][1], V::odd_bytes(bytes));
      }
    }
  }
};

struct NoWordRows {
  NoWordRows(const RowBlock*, std::int64_t) {}
};

// Adds the products of words of block b to sums.
template <int kRows, int kColumns, class V = Vectors>
HWY_INLINE void add_products_of_words(const Panel* panels, std::int64_t b, const WordRows<kRows>& rows,
                                      Int (&sums)[kRows][kColumns]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    Int w[kColumns];
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) w[p] = V::load(panels[p].q[16 * b + i]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Int x = broadcast_four(rows.words[r][b][i % 2] + i / 2 * 2);
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) {
        sums[r][p] = V::dot_words(sums[r][p], w[p], x);
        V::hold(sums[r][p]);
      }
    }
  }
}

// Adds the products of pairs of rows, computed as products of matrices: two weight rows by eight weights with two rows
// by eight numbers. The last row of an odd number is left out.
template <int kGroups, int kRows, int kColumns, class V = Vectors>
HWY_INLINE void add_products_of_pairs(const Panel* panels, std::int64_t first, const RowBlock* const (&rows)[kRows],
                                      int offset, Int (&sums)[kRows][kColumns]) {
  constexpr int kPairs = kRows / 2;
  Int products[kPairs][kColumns][2];  // of the panel's first weight rows, and of the others; lanes alternate between
                                      // the two rows
#pragma GCC unroll 8
  for (int i = 0; i < kGroups; i += 2) {
    Int w[kColumns][2];
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) {
      const Int a = V::load(panels[p].q[first + i]), b = V::load(panels[p].q[first + i + 1]);
      w[p][0] = V::low_32(a, b);
      w[p][1] = V::high_32(a, b);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kPairs; ++r) {
      const Int x = V::two_eights(rows[2 * r]->q + offset + 4 * i, rows[2 * r + 1]->q + offset + 4 * i);
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) {
#pragma GCC unroll 2
        for (int side = 0; side < 2; ++side) {
          const Int before = i == 0 ? V::set(0) : products[r][p][side];
          products[r][p][side] = V::multiply_matrices(before, w[p][side], x);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kPairs; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) {
      const Int low = products[r][p][0], high = products[r][p][1];
      sums[2 * r][p] = V::add(sums[2 * r][p], V::even_lanes(low, high));
      sums[2 * r + 1][p] = V::add(sums[2 * r + 1][p], V::odd_lanes(low, high));
    }
  }
}

// Adds the products of groups [first, first + kGroups) of four weights to sums; with kScalesWords, times the scale that
// these groups share.
template <class Format, int kGroups, int kRows, int kColumns, class V = Vectors>
HWY_INLINE void add_products(const Panel* panels, std::int64_t first, const RowBlock* const (&rows)[kRows], int offset,
                             Int (&sums)[kRows][kColumns]) {
  if constexpr (!kHasWords) {
    constexpr int kInPairs = V::kMultipliesMatrices ? kRows / 2 * 2 : 0;
    if constexpr (kInPairs > 0) add_products_of_pairs<kGroups>(panels, first, rows, offset, sums);
    if constexpr (kInPairs == kRows) return;
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; ++i) {
      Int w[kColumns];
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) w[p] = V::load(panels[p].q[first + i]);
#pragma GCC unroll 8
      for (int r = kInPairs; r < kRows; ++r) {
        const Int x = broadcast_four(rows[r]->q + offset + 4 * i);
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) sums[r][p] = V::dot(sums[r][p], w[p], x);
      }
    }
  } else {
    constexpr int kStep = kProductsOfAWord<Format>;
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; i += kStep) {
      Int words[kRows][kColumns];
#pragma GCC unroll 8
      for (int j = 0; j < kStep; ++j) {
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) {
          const Int w = V::load(panels[p].q[first + i + j]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const Int x = broadcast_four(rows[r]->q + offset + 4 * (i + j));
            words[r][p] = j == 0 ? V::pairs(w, x) : V::add_words(words[r][p], V::pairs(w, x));
            V::hold(words[r][p]);
          }
        }
      }
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) {
        const Int scale = kScalesWords<Format> ? V::load(panels[p].scales[first / kGroups]) : V::set(0x00010001);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r][p] = V::dot_words(sums[r][p], words[r][p], scale);
      }
    }
  }
}

// Multiplies a tile of a format with kScalesWords: scales and offsets are applied to integers, and a block of 32
// numbers is converted to float32 once.
template <class Format, int kRows, int kColumns, class V = Vectors>
HWY_NOINLINE void multiply_tile_of_integer_scales(const Panel* panels, std::int64_t n_blocks, const RowBlock* rows,
                                                  float* sums) {
  constexpr std::int64_t kStride = kColumns * kLanes;
  const RowBlock* row[kRows];
  Float total[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = rows + r * n_blocks;
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) total[r][p] = V::set_float(0);
  }
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    Int integers[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) {
        integers[r][p] = V::set(0);
        if constexpr (Format::kOffsetShift != 0) {
          const Int halves = V::set(static_cast<std::int32_t>(row[r]->negative_halves));
          integers[r][p] = V::dot_words(integers[r][p], halves, V::load(panels[p].offset_scales[b]));
        }
      }
    }
    if constexpr (Format::kHalves) {
      add_products<Format, 4>(panels, 8 * b, row, 0, integers);
      add_products<Format, 4>(panels, 8 * b + 4, row, 16, integers);
    } else {
      add_products<Format, 8>(panels, 8 * b, row, 0, integers);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Float scale = V::set_float(row[r]++->scale);
#pragma GCC unroll 2
      for (int p = 0; p < kColumns; ++p) total[r][p] = V::multiply_add(V::to_float(integers[r][p]), scale, total[r][p]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) {
      const Float factor = V::load_float(panels[p].factors), before = V::load_float(sums + r * kStride + p * kLanes);
      total[r][p] = V::multiply_add(total[r][p], factor, before);
    }
  }
  if constexpr (Format::kHasMinimum) {
    for (std::int64_t b = 0; b < n_blocks; ++b) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const RowBlock& block = rows[r * n_blocks + b];
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) {
          if constexpr (Format::kHalves) {
            total[r][p] =
                V::multiply_add(V::load_float(panels[p].minima[2 * b]), V::set_float(block.sum_low), total[r][p]);
            total[r][p] =
                V::multiply_add(V::load_float(panels[p].minima[2 * b + 1]), V::set_float(block.sum_high), total[r][p]);
          } else {
            total[r][p] = V::multiply_add(V::load_float(panels[p].minima[b]), V::set_float(block.sum), total[r][p]);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) V::store_float(sums + r * kStride + p * kLanes, total[r][p]);
  }
}

// Adds the products of kColumns panels with kRows rows over n_blocks blocks to sums [kRows][kColumns * kLanes].
//   rows: [kRows][n_blocks]
template <class Format, int kRows, int kColumns>
HWY_NOINLINE void multiply_tile(const Panel* panels, std::int64_t n_blocks, const RowBlock* rows, float* sums) {
  constexpr std::int64_t kStride = kColumns * kLanes;
  const RowBlock* row[kRows];
  Float total[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = rows + r * n_blocks;
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) total[r][p] = Vectors::load_float(sums + r * kStride + p * kLanes);
  }
  const std::conditional_t<kIsOfWords<Format>, WordRows<kRows>, NoWordRows> words(rows, n_blocks);
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    Int integers[kRows][kColumns];
    // Sums begin at minus the part that the offset adds to them.
    const auto begin = [&](std::int32_t(RowBlock::*negative)) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Int start = kHasOffset<Format>
                              ? Vectors::shift_left(Vectors::set(row[r]->*negative), Format::kOffsetShift)
                              : Vectors::set(0);
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) integers[r][p] = start;
      }
    };
    if constexpr (Format::kHalves) {
      Float scaled[kRows][kColumns];
      begin(&RowBlock::negative_low);
      add_products<Format, 4>(panels, 8 * b, row, 0, integers);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) {
          scaled[r][p] =
              Vectors::multiply(Vectors::to_float(integers[r][p]), Vectors::load_float(panels[p].scales[2 * b]));
        }
      }
      begin(&RowBlock::negative_high);
      add_products<Format, 4>(panels, 8 * b + 4, row, 16, integers);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Float scale = Vectors::set_float(row[r]->scale);
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) {
          scaled[r][p] = Vectors::multiply_add(Vectors::to_float(integers[r][p]),
                                               Vectors::load_float(panels[p].scales[2 * b + 1]), scaled[r][p]);
          total[r][p] = Vectors::multiply_add(scaled[r][p], scale, total[r][p]);
          if constexpr (Format::kHasMinimum) {
            total[r][p] = Vectors::multiply_add(Vectors::load_float(panels[p].minima[2 * b]),
                                                Vectors::set_float(row[r]->sum_low), total[r][p]);
            total[r][p] = Vectors::multiply_add(Vectors::load_float(panels[p].minima[2 * b + 1]),
                                                Vectors::set_float(row[r]->sum_high), total[r][p]);
          }
        }
      }
    } else {
      begin(&RowBlock::negative_sum);
      if constexpr (kIsOfWords<Format>) {
        add_products_of_words(panels, b, words, integers);
      } else {
        add_products<Format, 8>(panels, 8 * b, row, 0, integers);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Float scale = Vectors::set_float(row[r]->scale);
#pragma GCC unroll 2
        for (int p = 0; p < kColumns; ++p) {
          const Float scaled =
              Vectors::multiply(Vectors::to_float(integers[r][p]), Vectors::load_float(panels[p].scales[b]));
          total[r][p] = Vectors::multiply_add(scaled, scale, total[r][p]);
          if constexpr (Format::kHasMinimum) {
            total[r][p] = Vectors::multiply_add(Vectors::load_float(panels[p].minima[b]),
                                                Vectors::set_float(row[r]->sum), total[r][p]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) ++row[r];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int p = 0; p < kColumns; ++p) Vectors::store_float(sums + r * kStride + p * kLanes, total[r][p]);
  }
}

}  // namespace
}  // namespace winnow::kernels
