// A panel: so many weight rows as a vector has lanes, unpacked to integers of 8 bits, four neighbours of a row to a
// lane. Each format says how its blocks become one. Included by the files for one instruction set, behind Vectors.
#pragma once

namespace winnow::kernels {
namespace {

using Int = Vectors::Int;
using Float = Vectors::Float;
inline constexpr int kLanes = Vectors::kLanes;
inline constexpr std::int64_t kPanelBlocks = kChunkBlocks;  // of 32 weights: what is unpacked at a time

// weight = scale * (integer - offset) + minimum
struct Panel {
  alignas(64) std::uint8_t q[kPanelBlocks * 8][4 * kLanes];  // [four weights][lane][weight]
  alignas(64) float scales[kPanelBlocks * 2][kLanes];        // by block, or by half block
  alignas(64) float minima[kPanelBlocks * 2][kLanes];        // likewise
};

// Weights that are sent for a few lines at a time: the core has few lines on their way at once, and more of them hold
// up every other read.
// (Ahead of read_ahead.h counts its lines: q4_K took up to a tenth longer with it.)
struct ReadAhead {
  const std::byte *next, *last;
  bool to_first_level;
  HWY_INLINE void send_for(int n_lines) {
#pragma GCC unroll 4
    for (int i = 0; i < n_lines; ++i) fetch_line(std::min(next + 64 * i, last), to_first_level);
    next += 64 * n_lines;
  }
};

// Row 0 of a panel at the block in question; the others follow at a distance.
struct PanelRows {
  const std::byte* row;
  std::size_t stride;
  ReadAhead* ahead;
  PanelRows operator+(std::size_t bytes) const { return {row + bytes, stride, ahead}; }
};

// out[i]: bytes [4 i, 4 i + 4) of every row. Reads 16 bytes of each.
HWY_INLINE void load_16(const PanelRows& rows, Int (&out)[4]) {
  rows.ahead->send_for(4);
  const Int a = Vectors::every_fourth(rows.row, rows.stride);
  const Int b = Vectors::every_fourth(rows.row + rows.stride, rows.stride);
  const Int c = Vectors::every_fourth(rows.row + 2 * rows.stride, rows.stride);
  const Int d = Vectors::every_fourth(rows.row + 3 * rows.stride, rows.stride);
  const Int ab_low = Vectors::low_32(a, b), ab_high = Vectors::high_32(a, b);
  const Int cd_low = Vectors::low_32(c, d), cd_high = Vectors::high_32(c, d);
  out[0] = Vectors::low_64(ab_low, cd_low);
  out[1] = Vectors::high_64(ab_low, cd_low);
  out[2] = Vectors::low_64(ab_high, cd_high);
  out[3] = Vectors::high_64(ab_high, cd_high);
}

HWY_INLINE Int masked(Int x, std::uint32_t mask) {
  return Vectors::bit_and(x, Vectors::set(static_cast<std::int32_t>(mask)));
}
HWY_INLINE Int masked_right(Int x, int shift, std::uint32_t mask) {
  return masked(Vectors::shift_right(x, shift), mask);
}
HWY_INLINE Int low_nibbles(Int x) { return masked(x, 0x0F0F0F0F); }
HWY_INLINE Int high_nibbles(Int x) { return masked_right(x, 4, 0x0F0F0F0F); }
HWY_INLINE Float byte_of(Int x, int i) { return Vectors::to_float(masked_right(x, 8 * i, 0xFF)); }
HWY_INLINE Float high_half(Int x) { return Vectors::halves(Vectors::shift_right(x, 16)); }

// Integers of 8 bits: where the product of bytes saturates they stay signed (int8_product-inl.h multiplies absolutes).
HWY_INLINE Int wide(Int x) {
  return Vectors::kDotSaturates ? Vectors::bit_xor(x, Vectors::set(static_cast<std::int32_t>(0x80808080U))) : x;
}

// 16 bytes whose low halves are the block's first 16 integers, the high halves the others.
HWY_INLINE void store_nibbles(const PanelRows& rows, std::int64_t block, Panel& panel, auto&& as_integers) {
  Int bytes[4];
  load_16(rows, bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    Vectors::store(panel.q[8 * block + i], as_integers(low_nibbles(bytes[i]), i));
    Vectors::store(panel.q[8 * block + 4 + i], as_integers(high_nibbles(bytes[i]), 4 + i));
  }
}

HWY_INLINE Int unchanged(Int x, int /*i*/) { return x; }

struct OneScale {
  static constexpr bool kHalves = false;  // a scale for each half block
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
          Vectors::store(panel.q[8 * b + 4 * half + i], wide(Vectors::bit_xor(bytes[i], sign)));
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
  static Int values(Int indices, int /*i*/) { return wide(Vectors::lookup(table(), indices)); }
  static void unpack(PanelRows rows, std::int64_t n_blocks, Panel& panel) {
    for (std::int64_t b = 0; b < n_blocks; ++b, rows.row += 18) {
      Int head[4];
      load_16(rows, head);
      Vectors::store_float(panel.scales[b], Vectors::halves(head[0]));
      store_nibbles(rows + 2, b, panel, values);
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
      store_nibbles(rows + (8 + 16 * static_cast<std::size_t>(b)), b, panel, IQ4_NL::values);
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
#pragma GCC unroll 8
  for (int b = 0; b < 8; ++b) {
    Vectors::store_float(panel.scales[b], Vectors::multiply(d, byte_of(scales[b / 4], b % 4)));
    Vectors::store_float(panel.minima[b], Vectors::multiply(d_min, byte_of(minima[b / 4], b % 4)));
  }
}

struct Q4_K : OneScale {
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
  static constexpr int kMaxInteger = 63, kOffsetShift = 5;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int scales[4], end[4];
    load_16(rows + 192, scales);
    load_16(rows + 194, end);
    const Float d = high_half(end[3]);
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      const Int scale = Vectors::shift_right_signed(Vectors::shift_left(scales[s / 4], 24 - 8 * (s % 4)), 24);
      Vectors::store_float(panel.scales[s], Vectors::multiply(d, Vectors::to_float(scale)));
    }
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
  static constexpr bool kHasMinimum = true;
  static constexpr int kMaxInteger = 3;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int scales[4], bytes[4];
    load_16(rows, scales);  // a scale and a minimum of 4 bits for each 16 weights
    load_16(rows + 68, bytes);
    const Float d = Vectors::halves(bytes[3]);
    const Float d_min = Vectors::multiply(high_half(bytes[3]), Vectors::set_float(-1.0F));
#pragma GCC unroll 16
    for (int s = 0; s < 16; ++s) {
      const Int scale = masked_right(scales[s / 4], 8 * (s % 4), 0x0F);
      const Int minimum = masked_right(scales[s / 4], 8 * (s % 4) + 4, 0x0F);
      Vectors::store_float(panel.scales[s], Vectors::multiply(d, Vectors::to_float(scale)));
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
  static constexpr int kMaxInteger = 7, kOffsetShift = 2;
  static void unpack(const PanelRows& rows, std::int64_t /*n_blocks*/, Panel& panel) {
    Int end[4];
    load_16(rows + 94, end);  // 2 bytes of integers, 12 of scales, half scale
    const Float d = high_half(end[3]);
    const auto joined = [&](int i) {
      return Vectors::bit_or(Vectors::shift_right(end[i], 16), Vectors::shift_left(end[i + 1], 16));
    };
    const Int low[2] = {joined(0), joined(1)}, high = joined(2);  // 16 x 4 bits, 16 x 2 bits
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
      const Int nibbles = four < 2 ? low_nibbles(low[four]) : high_nibbles(low[four - 2]);
      const Int scales = Vectors::bit_or(nibbles, Vectors::shift_left(masked_right(high, 2 * four, 0x03030303), 4));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Int scale = Vectors::subtract(masked_right(scales, 8 * i, 0xFF), Vectors::set(32));
        Vectors::store_float(panel.scales[4 * four + i], Vectors::multiply(d, Vectors::to_float(scale)));
      }
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
