// Unpacks the blocks of each format. `rows` (int8_rows-inl.h) is at the first block before, and after the last one
// afterwards; `out` is a Panel or StreamedProducts.
#pragma once

#include "kernels/products/int8_panels-inl.h"

namespace winnow::kernels {
namespace {

// Unpacks 16 bytes from dword `first` on: their low halves are the block's first 16 integers, the high halves the
// others.
//   put(group, integers, index of the group among the block's eight)
HWY_INLINE void unpack_nibbles(auto& rows, int first, std::int64_t block, auto&& put) {
  Int bytes[4];
  rows.load(first, bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    put(8 * block + i, low_nibbles(bytes[i]), i);
    put(8 * block + 4 + i, high_nibbles(bytes[i]), 4 + i);
  }
}

// Unpacks such a block, whose nibbles are indices into a table of integers with 128 added.
HWY_INLINE void unpack_wide_nibbles(auto& rows, int first, std::int64_t block, const std::uint8_t (&table)[16],
                                    auto& out) {
  unpack_nibbles(rows, first, block,
                 [&](std::int64_t group, Int x, int) { out.put_wide(group, Vectors::lookup(table, x)); });
}

// Sets scale i of a chunk of 256 weights: an integer times d.
HWY_INLINE void unpack_integer_scale(auto& out, int i, Int scale, Float d) {
  if constexpr (kHasWords) {
    out.set_word_scale(i, in_both_words(scale));
  } else {
    out.set_scale(i, Vectors::multiply(d, Vectors::to_float(scale)));
  }
}

// Sets the two scales of a block that has one for each half.
template <class Format>
HWY_INLINE void unpack_half_scales(auto& out, int block, Int low, Int high, Float d) {
  unpack_integer_scale(out, 2 * block, low, d);
  unpack_integer_scale(out, 2 * block + 1, high, d);
  if constexpr (kHasWords && Format::kOffsetShift != 0) {
    const Int first = masked(Vectors::shift_left(low, Format::kOffsetShift), 0xFFFF);
    out.set_offset_scales(block, Vectors::bit_or(first, Vectors::shift_left(high, 16 + Format::kOffsetShift)));
  }
}

// The properties of a format with one scale for each block of 32 weights; other formats override them.
template <WeightBlocks blocks>
struct OneScale {
  static constexpr WeightBlocks kBlocks = blocks;
  static constexpr bool kHalves = false;            // each half block has its own scale
  static constexpr bool kHasIntegerScales = false;  // scales are integers times one number for 256 weights
  static constexpr bool kHasMinimum = false;
  static constexpr int kOffsetShift = 0;  // the offset is 2 to this power; 0: none
  static constexpr int kOpenBlocks = 1;   // blocks whose integers are interleaved
};

struct Q4_0 : OneScale<WeightBlocks::kQ4_0> {
  static constexpr int kMaxInteger = 15, kOffsetShift = 3;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      out.set_scale(b, Vectors::halves(rows.lone()));
      unpack_nibbles(rows, 0, b, [&](std::int64_t group, Int x, int) { out.put(group, x); });
      out.end_blocks(b, 1);
    }
  }
};

struct Q4_1 : OneScale<WeightBlocks::kQ4_1> {
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 15;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      const Int head = rows.dword(0);
      out.set_scale(b, Vectors::halves(head));
      out.set_minimum(b, high_half(head));
      unpack_nibbles(rows, 1, b, [&](std::int64_t group, Int x, int) { out.put(group, x); });
      out.end_blocks(b, 1);
    }
  }
};

// Returns bits [4 i, 4 i + 4) of x as the fifth bits of four bytes.
HWY_INLINE Int fifth_bits(Int x, int i) {
  const Int bits = masked_right(x, 4 * i, 0x0F);
  const Int pairs = Vectors::bit_or(bits, Vectors::shift_left(bits, 7));
  const Int all = Vectors::bit_or(pairs, Vectors::shift_left(pairs, 14));
  return Vectors::shift_left(masked(all, 0x01010101), 4);
}

struct Q5_0 : OneScale<WeightBlocks::kQ5_0> {
  static constexpr int kMaxInteger = 31, kOffsetShift = 4;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      out.set_scale(b, Vectors::halves(rows.lone()));
      const Int fifth = rows.dword(0);
      unpack_nibbles(rows, 1, b, [&](std::int64_t group, Int x, int i) {
        out.put(group, Vectors::bit_or(x, fifth_bits(fifth, i)));
      });
      out.end_blocks(b, 1);
    }
  }
};

struct Q5_1 : OneScale<WeightBlocks::kQ5_1> {
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 31;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      const Int head = rows.dword(0), fifth = rows.dword(1);
      out.set_scale(b, Vectors::halves(head));
      out.set_minimum(b, high_half(head));
      unpack_nibbles(rows, 2, b, [&](std::int64_t group, Int x, int i) {
        out.put(group, Vectors::bit_or(x, fifth_bits(fifth, i)));
      });
      out.end_blocks(b, 1);
    }
  }
};

struct Q8_0 : OneScale<WeightBlocks::kQ8_0> {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      out.set_scale(b, Vectors::halves(rows.lone()));
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Int bytes[4];
        rows.load(4 * half, bytes);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) out.put_wide(8 * b + 4 * half + i, with_other_sign(bytes[i]));
      }
      out.end_blocks(b, 1);
    }
  }
};

struct IQ4_NL : OneScale<WeightBlocks::kIQ4_NL> {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  // The format's values plus 128.
  alignas(16) static constexpr std::uint8_t kTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                          129, 141, 153, 166, 181, 197, 217, 241};
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      out.set_scale(b, Vectors::halves(rows.lone()));
      unpack_wide_nibbles(rows, 0, b, kTable, out);
      out.end_blocks(b, 1);
    }
  }
};

struct IQ4_XS : OneScale<WeightBlocks::kIQ4_XS> {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int head[4];  // float16 scale, 8 x 2 high bits of the blocks' scales; 8 x 4 low bits
    rows.load(0, head);
    const Float d = Vectors::halves(head[0]);
    for (int b = 0; b < kPanelBlocks; ++b) {
      const Int low = masked_right(head[1], 4 * b, 0x0F);
      const Int high = masked_right(head[0], 16 + 2 * b, 0x03);
      const Int scale = Vectors::subtract(Vectors::bit_or(low, Vectors::shift_left(high, 4)), Vectors::set(32));
      out.set_scale(b, Vectors::multiply(d, Vectors::to_float(scale)));
      unpack_wide_nibbles(rows, 2 + 4 * b, b, IQ4_NL::kTable, out);
      out.end_blocks(b, 1);
    }
    rows.advance();
  }
};

struct MXFP4 : OneScale<WeightBlocks::kMXFP4> {
  static constexpr int kMaxInteger = 28, kOffsetShift = 4;
  // Twice the values of a 4-bit float, plus 16.
  alignas(16) static constexpr std::uint8_t kTable[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t n_blocks, Out& out) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.advance()) {
      // The scale as a float32 is 2 to the power of byte - 128. For bytes below 2 it is the subnormal number 0x200000
      // << byte; otherwise its exponent is byte - 1.
      const Int exponent = masked(rows.lone(), 0xFF);
      const Int normal = Vectors::shift_left(Vectors::subtract(exponent, Vectors::set(1)), 23);
      const Int at_least_one = Vectors::max(exponent, Vectors::set(0));
      const Int one = masked(at_least_one, 1);
      const Int subnormal = Vectors::bit_or(Vectors::shift_left(one, 22),
                                            Vectors::shift_left(Vectors::bit_xor(one, Vectors::set(1)), 21));
      // `normal` is negative for a byte of 0, 0 for a byte of 1, and exceeds the subnormal ones for every other byte.
      out.set_scale(b, Vectors::as_float(Vectors::max(normal, subnormal)));
      unpack_nibbles(rows, 0, b, [&](std::int64_t group, Int x, int) { out.put(group, Vectors::lookup(kTable, x)); });
      out.end_blocks(b, 1);
    }
  }
};

// Puts the top two bits of every byte above its four bits.
HWY_INLINE Int with_top_bits(Int nibbles, Int top) {
  return Vectors::bit_or(nibbles, Vectors::shift_left(masked_right(top, 6, 0x03030303), 4));
}

// Unpacks 8 scales and 8 minima of 6 bits from 12 bytes, the layout of q4_K and q5_K.
HWY_INLINE void unpack_k_scales(const Int (&head)[4], auto& out) {
  const Float d = Vectors::halves(head[0]);
  const Float d_min = Vectors::multiply(high_half(head[0]), Vectors::set_float(-1.0F));
  const Int scales[2] = {masked(head[1], 0x3F3F3F3F), with_top_bits(low_nibbles(head[3]), head[1])};
  const Int minima[2] = {masked(head[2], 0x3F3F3F3F), with_top_bits(high_nibbles(head[3]), head[2])};
  out.set_factor(d);
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) {
    unpack_integer_scale(out, b, byte_of(scales[b / 4], b % 4), d);
    const Float minimum = Vectors::to_float(byte_of(minima[b / 4], b % 4));
    out.set_minimum(b, Vectors::multiply(d_min, minimum));
  }
}

struct Q4_K : OneScale<WeightBlocks::kQ4_K> {
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 15, kOpenBlocks = 2;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int bytes[4];
    rows.load(0, bytes);
    unpack_k_scales(bytes, out);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {  // pairs of blocks
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {  // 16 bytes: half of both blocks
        rows.load(4 + 8 * pair + 4 * side, bytes);
        const int first = 16 * pair + 4 * side;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          out.put(first + i, low_nibbles(bytes[i]));
          out.put(first + 8 + i, high_nibbles(bytes[i]));
        }
      }
      out.end_blocks(2 * pair, 2);
    }
    rows.advance();
  }
};

struct Q5_K : OneScale<WeightBlocks::kQ5_K> {
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 31, kOpenBlocks = 2;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int bytes[4], fifth[2][4];
    rows.load(0, bytes);
    unpack_k_scales(bytes, out);
    rows.load(4, fifth[0]);  // bit b of byte i belongs to weight i of block b
    rows.load(8, fifth[1]);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {
        rows.load(12 + 8 * pair + 4 * side, bytes);
        const int first = 16 * pair + 4 * side;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const auto with_fifth = [&](Int x, int b) {
            return Vectors::bit_or(x, Vectors::shift_left(masked_right(fifth[side][i], b, 0x01010101), 4));
          };
          out.put(first + i, with_fifth(low_nibbles(bytes[i]), 2 * pair));
          out.put(first + 8 + i, with_fifth(high_nibbles(bytes[i]), 2 * pair + 1));
        }
      }
      out.end_blocks(2 * pair, 2);
    }
    rows.advance();
  }
};

struct Q6_K : OneScale<WeightBlocks::kQ6_K> {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr int kMaxInteger = 63, kOffsetShift = 5, kOpenBlocks = 4;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int scales[4];
    rows.load(48, scales);
    const Float d = Vectors::halves(rows.lone());
    out.set_factor(d);
    const auto scale = [&](int s) {
      return Vectors::shift_right_signed(Vectors::shift_left(scales[s / 4], 24 - 8 * (s % 4)), 24);
    };
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) unpack_half_scales<Q6_K>(out, b, scale(2 * b), scale(2 * b + 1), d);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {  // 16 bytes of high bits: half of four blocks
        Int high[4], low[2][4];
        rows.load(32 + 8 * half + 4 * side, high);
        rows.load(16 * half + 4 * side, low[0]);
        rows.load(16 * half + 8 + 4 * side, low[1]);
        const int first = 32 * half + 4 * side;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const auto put = [&](int block, Int nibbles, Int two_bits) {
            out.put(first + 8 * block + i, Vectors::bit_or(nibbles, two_bits));
          };
          put(0, low_nibbles(low[0][i]), masked(Vectors::shift_left(high[i], 4), 0x30303030));
          put(1, low_nibbles(low[1][i]), masked(Vectors::shift_left(high[i], 2), 0x30303030));
          put(2, high_nibbles(low[0][i]), masked(high[i], 0x30303030));
          put(3, high_nibbles(low[1][i]), masked_right(high[i], 2, 0x30303030));
        }
        out.end_halves(4 * half, 4, side);
      }
    }
    rows.advance();
  }
};

struct Q2_K : OneScale<WeightBlocks::kQ2_K> {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 3, kOpenBlocks = 4;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int scales[4], bytes[4];
    rows.load(0, scales);  // a scale and a minimum of 4 bits for each 16 weights
    const Int end = rows.dword(20);
    const Float d = Vectors::halves(end);
    const Float d_min = Vectors::multiply(high_half(end), Vectors::set_float(-1.0F));
    out.set_factor(d);
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      unpack_integer_scale(out, s, masked_right(scales[s / 4], 8 * (s % 4), 0x0F), d);
      const Int minimum = masked_right(scales[s / 4], 8 * (s % 4) + 4, 0x0F);
      out.set_minimum(s, Vectors::multiply(d_min, Vectors::to_float(minimum)));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {  // 16 bytes: half of four blocks
        rows.load(4 + 8 * half + 4 * side, bytes);
        const int first = 32 * half + 4 * side;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
          for (int block = 0; block < 4; ++block) {
            out.put(first + 8 * block + i, masked_right(bytes[i], 2 * block, 0x03030303));
          }
        }
        out.end_halves(4 * half, 4, side);
      }
    }
    rows.advance();
  }
};

struct Q3_K : OneScale<WeightBlocks::kQ3_K> {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr int kMaxInteger = 7, kOffsetShift = 2, kOpenBlocks = 4;
  template <class Rows, class Out>
  HWY_INLINE static void unpack(Rows& rows, std::int64_t /*n_blocks*/, Out& out) {
    Int end[4];  // integers; 16 x 4 bits and 16 x 2 bits of scales
    rows.load(23, end);
    const Float d = Vectors::halves(rows.lone());
    out.set_factor(d);
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const Int nibbles = four < 2 ? low_nibbles(end[1 + four]) : high_nibbles(end[four - 1]);
      const Int scales = Vectors::bit_or(nibbles, Vectors::shift_left(masked_right(end[3], 2 * four, 0x03030303), 4));
      const auto scale = [&](int i) { return Vectors::subtract(byte_of(scales, i), Vectors::set(32)); };
      unpack_half_scales<Q3_K>(out, 2 * four, scale(0), scale(1), d);
      unpack_half_scales<Q3_K>(out, 2 * four + 1, scale(2), scale(3), d);
    }
    Int third[2][4], bytes[4];
    rows.load(0, third[0]);  // bit b of byte i belongs to weight i of block b
    rows.load(4, third[1]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (int side = 0; side < 2; ++side) {
        rows.load(8 + 8 * half + 4 * side, bytes);
        const int first = 32 * half + 4 * side;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
          for (int block = 0; block < 4; ++block) {
            const Int bit = masked_right(third[side][i], 4 * half + block, 0x01010101);
            out.put(first + 8 * block + i,
                    Vectors::bit_or(masked_right(bytes[i], 2 * block, 0x03030303), Vectors::shift_left(bit, 2)));
          }
        }
        out.end_halves(4 * half, 4, side);
      }
    }
    rows.advance();
  }
};

}  // namespace
}  // namespace winnow::kernels
