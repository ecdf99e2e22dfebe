// How the blocks of each format become a panel (int8_panels-inl.h).
#pragma once

#include "kernels/int8_panels-inl.h"

namespace winnow::kernels {
namespace {

HWY_INLINE Int unchanged(Int x, int /*i*/) { return x; }

struct OneScale {
  static constexpr bool kHalves = false;            // a scale for each half block
  static constexpr bool kHasIntegerScales = false;  // times one number for 256 weights
  static constexpr bool kHasMinimum = false;
  static constexpr int kOffsetShift = 0;  // the offset is 2 to the power of it; 0: none
};

struct Q4_0 : OneScale {
  static constexpr int kMaxInteger = 15, kOffsetShift = 3;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 18) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      store_nibbles(rows + 2, b, panel, unchanged);
    }
  }
};

struct Q4_1 : OneScale {
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 15;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 20) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      Vectors::store_float(panel.minima[b], high_half(head[0]));
      store_nibbles(rows + 4, b, panel, unchanged);
    }
  }
};

// Bits [4 i, 4 i + 4) of x, as the fifth bits of four bytes.
HWY_INLINE Int fifth_bits(Int x, int i) {
  const Int bits = masked_right(x, 4 * i, 0x0F);
  const Int pairs = Vectors::bit_or(bits, Vectors::shift_left(bits, 7));
  const Int all = Vectors::bit_or(pairs, Vectors::shift_left(pairs, 14));
  return Vectors::shift_left(masked(all, 0x01010101), 4);
}

struct Q5_0 : OneScale {
  static constexpr int kMaxInteger = 31, kOffsetShift = 4;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 22) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      const Int high = Vectors::bit_or(Vectors::shift_right(head[0], 16), Vectors::shift_left(head[1], 16));
      store_nibbles(rows + 6, b, panel, [&](Int x, int i) { return Vectors::bit_or(x, fifth_bits(high, i)); });
    }
  }
};

struct Q5_1 : OneScale {
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 31;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 24) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      Vectors::store_float(panel.minima[b], high_half(head[0]));
      store_nibbles(rows + 8, b, panel, [&](Int x, int i) { return Vectors::bit_or(x, fifth_bits(head[1], i)); });
    }
  }
};

struct Q8_0 : OneScale {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    const Int sign = Vectors::set(static_cast<std::int32_t>(0x80808080U));
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 34) {
      Int bytes[4];
      load_16(rows, bytes);
      Vectors::store_float(panel.scales[b], Vectors::halves(bytes[0]));
      for (int half = 0; half < 2; ++half) {
        load_16(rows + (2 + 16 * static_cast<std::size_t>(half)), bytes);
        for (int i = 0; i < 4; ++i) {
          store_wide(panel, 8 * b + 4 * half + i, Vectors::bit_xor(bytes[i], sign));
        }
      }
    }
  }
};

struct IQ4_NL : OneScale {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  static __m128i table() {  // the values, 128 more
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15);
  }
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 18) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      store_wide_nibbles(rows + 2, b, panel, table());
    }
  }
};

struct IQ4_XS : OneScale {
  static constexpr int kMaxInteger = 255, kOffsetShift = 7;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int head[4];  // half scale, 8 x 2 high bits of the blocks' scales; 8 x 4 low bits
    load_16(rows, head);
    const Float d = Vectors::halves(head[0]);
    for (int b = 0; b < kPanelBlocks; ++b) {
      const Int low = masked_right(head[1], 4 * b, 0x0F);
      const Int high = masked_right(head[0], 16 + 2 * b, 0x03);
      const Int scale = Vectors::subtract(Vectors::bit_or(low, Vectors::shift_left(high, 4)), Vectors::set(32));
      Vectors::store_float(panel.scales[b], Vectors::multiply(d, Vectors::to_float(scale)));
      store_wide_nibbles(rows + (8 + 16 * static_cast<std::size_t>(b)), b, panel, IQ4_NL::table());
    }
  }
};

struct MXFP4 : OneScale {
  static constexpr int kMaxInteger = 28, kOffsetShift = 4;
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    // Twice the values of a float of 4 bits, 16 more.
    const __m128i table = _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 17) {
      Int head[4];
      load_16(rows, head);
      // The scale is 2 to the power of the byte less 128, as a float32: below 2 that is a subnormal number, and
      // 0x200000 << byte; else its exponent is the byte less 1.
      const Int exponent = masked(head[0], 0xFF);
      const Int normal = Vectors::shift_left(Vectors::subtract(exponent, Vectors::set(1)), 23);
      const Int at_least_one = Vectors::max(exponent, Vectors::set(0));
      const Int one = masked(at_least_one, 1);
      const Int subnormal = Vectors::bit_or(Vectors::shift_left(one, 22),
                                            Vectors::shift_left(Vectors::bit_xor(one, Vectors::set(1)), 21));
      // A byte of 0 gives a negative number, 1 gives 0; every other is more than the subnormal ones.
      Vectors::store_float(panel.scales[b], Vectors::as_float(Vectors::max(normal, subnormal)));
      store_nibbles(rows + 1, b, panel, [&](Int x, int) { return Vectors::lookup(table, x); });
    }
  }
};

// The top two bits of every byte go above its four bits.
HWY_INLINE Int with_top_bits(Int nibbles, Int top) {
  return Vectors::bit_or(nibbles, Vectors::shift_left(masked_right(top, 6, 0x03030303), 4));
}

// 8 scales and 8 minima of 6 bits in 12 bytes, as q4_K and q5_K have them.
HWY_INLINE void store_k_scales(const Int (&head)[4], Panel& panel) {
  const Float d = Vectors::halves(head[0]);
  const Float d_min = Vectors::multiply(high_half(head[0]), Vectors::set_float(-1.0F));
  const Int scales[2] = {masked(head[1], 0x3F3F3F3F), with_top_bits(low_nibbles(head[3]), head[1])};
  const Int minima[2] = {masked(head[2], 0x3F3F3F3F), with_top_bits(high_nibbles(head[3]), head[2])};
  Vectors::store_float(panel.factors, d);
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) {
    store_integer_scale(panel, b, byte_of(scales[b / 4], b % 4), d);
    const Float minimum = Vectors::to_float(byte_of(minima[b / 4], b % 4));
    Vectors::store_float(panel.minima[b], Vectors::multiply(d_min, minimum));
  }
}

struct Q4_K : OneScale {
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 15;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int bytes[4];
    load_16(rows, bytes);
    store_k_scales(bytes, panel);
    for (int part = 0; part < 8; ++part) {  // 16 bytes: halves of two blocks
      load_16(rows + (16 + 16 * static_cast<std::size_t>(part)), bytes);
      const int first = 16 * (part / 2) + 4 * (part % 2);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        Vectors::store(panel.q[first + i], low_nibbles(bytes[i]));
        Vectors::store(panel.q[first + 8 + i], high_nibbles(bytes[i]));
      }
    }
  }
};

struct Q5_K : OneScale {
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 31;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int bytes[4], fifth[2][4];
    load_16(rows, bytes);
    store_k_scales(bytes, panel);
    load_16(rows + 16, fifth[0]);  // bit b of byte i: of weight i of block b
    load_16(rows + 32, fifth[1]);
#pragma GCC unroll 8
    for (int part = 0; part < 8; ++part) {
      load_16(rows + (48 + 16 * static_cast<std::size_t>(part)), bytes);
      const int block = 2 * (part / 2), first = 8 * block + 4 * (part % 2);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto with_fifth = [&](Int x, int b) {
          return Vectors::bit_or(x, Vectors::shift_left(masked_right(fifth[part % 2][i], b, 0x01010101), 4));
        };
        Vectors::store(panel.q[first + i], with_fifth(low_nibbles(bytes[i]), block));
        Vectors::store(panel.q[first + 8 + i], with_fifth(high_nibbles(bytes[i]), block + 1));
      }
    }
  }
};

struct Q6_K : OneScale {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr int kMaxInteger = 63, kOffsetShift = 5;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int scales[4], end[4];
    load_16(rows + 192, scales);
    load_16(rows + 194, end);
    const Float d = high_half(end[3]);
    Vectors::store_float(panel.factors, d);
    const auto scale = [&](int s) {
      return Vectors::shift_right_signed(Vectors::shift_left(scales[s / 4], 24 - 8 * (s % 4)), 24);
    };
#pragma GCC unroll 8
    for (int b = 0; b < 8; ++b) store_half_scales<Q6_K>(panel, b, scale(2 * b), scale(2 * b + 1), d);
    for (int part = 0; part < 4; ++part) {  // 16 bytes of high bits: half of four blocks
      const auto side = static_cast<std::size_t>(part % 2), half = static_cast<std::size_t>(part / 2);
      Int high[4], low[2][4];
      load_16(rows + (128 + 32 * half + 16 * side), high);
      load_16(rows + (64 * half + 16 * side), low[0]);
      load_16(rows + (64 * half + 32 + 16 * side), low[1]);
      const int first = 32 * (part / 2) + 4 * (part % 2);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto store = [&](int block, Int nibbles, Int two_bits) {
          Vectors::store(panel.q[first + 8 * block + i], Vectors::bit_or(nibbles, two_bits));
        };
        store(0, low_nibbles(low[0][i]), masked(Vectors::shift_left(high[i], 4), 0x30303030));
        store(1, low_nibbles(low[1][i]), masked(Vectors::shift_left(high[i], 2), 0x30303030));
        store(2, high_nibbles(low[0][i]), masked(high[i], 0x30303030));
        store(3, high_nibbles(low[1][i]), masked_right(high[i], 2, 0x30303030));
      }
    }
  }
};

struct Q2_K : OneScale {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 3;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int scales[4], bytes[4];
    load_16(rows, scales);  // a scale and a minimum of 4 bits for each 16 weights
    load_16(rows + 68, bytes);
    const Float d = Vectors::halves(bytes[3]);
    const Float d_min = Vectors::multiply(high_half(bytes[3]), Vectors::set_float(-1.0F));
    Vectors::store_float(panel.factors, d);
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      store_integer_scale(panel, s, masked_right(scales[s / 4], 8 * (s % 4), 0x0F), d);
      const Int minimum = masked_right(scales[s / 4], 8 * (s % 4) + 4, 0x0F);
      Vectors::store_float(panel.minima[s], Vectors::multiply(d_min, Vectors::to_float(minimum)));
    }
    for (int part = 0; part < 4; ++part) {  // 16 bytes: half of four blocks
      load_16(rows + (16 + 16 * static_cast<std::size_t>(part)), bytes);
      const int first = 32 * (part / 2) + 4 * (part % 2);
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int block = 0; block < 4; ++block) {
          Vectors::store(panel.q[first + 8 * block + i], masked_right(bytes[i], 2 * block, 0x03030303));
        }
      }
    }
  }
};

struct Q3_K : OneScale {
  static constexpr bool kHalves = true;
  static constexpr bool kHasIntegerScales = true;
  static constexpr int kMaxInteger = 7, kOffsetShift = 2;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int end[4];
    load_16(rows + 94, end);  // 2 bytes of integers, 12 of scales, half scale
    const Float d = high_half(end[3]);
    Vectors::store_float(panel.factors, d);
    const auto joined = [&](int i) {
      return Vectors::bit_or(Vectors::shift_right(end[i], 16), Vectors::shift_left(end[i + 1], 16));
    };
    const Int low[2] = {joined(0), joined(1)}, high = joined(2);  // 16 x 4 bits, 16 x 2 bits
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const Int nibbles = four < 2 ? low_nibbles(low[four]) : high_nibbles(low[four - 2]);
      const Int scales = Vectors::bit_or(nibbles, Vectors::shift_left(masked_right(high, 2 * four, 0x03030303), 4));
      const auto scale = [&](int i) { return Vectors::subtract(byte_of(scales, i), Vectors::set(32)); };
      store_half_scales<Q3_K>(panel, 2 * four, scale(0), scale(1), d);
      store_half_scales<Q3_K>(panel, 2 * four + 1, scale(2), scale(3), d);
    }
    Int third[2][4], bytes[4];
    load_16(rows, third[0]);  // bit b of byte i: of weight i of block b
    load_16(rows + 16, third[1]);
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      load_16(rows + (32 + 16 * static_cast<std::size_t>(part)), bytes);
      const int first = 32 * (part / 2) + 4 * (part % 2);
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int block = 0; block < 4; ++block) {
          const Int bit = masked_right(third[part % 2][i], 4 * (part / 2) + block, 0x01010101);
          Vectors::store(panel.q[first + 8 * block + i],
                         Vectors::bit_or(masked_right(bytes[i], 2 * block, 0x03030303), Vectors::shift_left(bit, 2)));
        }
      }
    }
  }
};

}  // namespace
}  // namespace winnow::kernels
