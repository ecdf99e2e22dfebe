// A panel: so many weight rows as a vector has lanes, unpacked to integers of 8 bits, four neighbours of a row to a
// lane. Behind Vectors, as all that int8_product-inl.h includes.
#pragma once

namespace winnow::kernels {
namespace {

using Int = Vectors::Int;
using Float = Vectors::Float;
inline constexpr int kLanes = Vectors::kLanes;
inline constexpr std::int64_t kPanelBlocks = kChunkBlocks;  // of 32 weights: what is unpacked at a time

// Where products of bytes are 16-bit words, integers above 127 are words, and integer scales are taken while words are
// widened.
inline constexpr bool kHasWords = Vectors::kDotSaturates;
template <class Format>
inline constexpr bool kIsOfWords = kHasWords&& Format::kMaxInteger > 127;
template <class Format>
inline constexpr bool kScalesWords = kHasWords&& Format::kHasIntegerScales;

// weight = scale * (integer - offset) + minimum; with kScalesWords factor * scale * (integer - offset) + minimum.
struct Panel {
  // [four weights][lane][weight]; of words [four weights][first and third, second and fourth][lane][weight]
  alignas(64) std::uint8_t q[kPanelBlocks * 8 * (kHasWords ? 2 : 1)][4 * kLanes];
  // By block, or by half block. With kScalesWords integers, in both words of a lane.
  alignas(64) float scales[kPanelBlocks * 2][kLanes];
  union {
    alignas(64) float minima[kPanelBlocks * 2][kLanes];  // likewise
    // With kScalesWords, of formats by half blocks: by block, of its halves in a word each, times the offset.
    alignas(64) std::int32_t offset_scales[kPanelBlocks][kLanes];
  };
  alignas(64) float factors[kLanes];
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
HWY_INLINE Int byte_of(Int x, int i) { return masked_right(x, 8 * i, 0xFF); }
HWY_INLINE Float high_half(Int x) { return Vectors::halves(Vectors::shift_right(x, 16)); }

HWY_INLINE Int in_both_words(Int x) { return Vectors::bit_or(masked(x, 0xFFFF), Vectors::shift_left(x, 16)); }

// Four integers of 8 bits a lane, 128 more than they are.
template <class V = Vectors>
HWY_INLINE void store_wide(Panel& panel, std::int64_t group, Int x) {
  if constexpr (kHasWords) {
    const Int bytes = V::bit_xor(x, V::set(static_cast<std::int32_t>(0x80808080U)));
    V::store(panel.q[2 * group], V::even_bytes(bytes));
    V::store(panel.q[2 * group + 1], V::odd_bytes(bytes));
  } else {
    V::store(panel.q[group], x);
  }
}

// Scale i of a chunk of 256 weights whose integer scales are d times as much.
HWY_INLINE void store_integer_scale(Panel& panel, int i, Int scale, Float d) {
  if constexpr (kHasWords) {
    Vectors::store(panel.scales[i], in_both_words(scale));
  } else {
    Vectors::store_float(panel.scales[i], Vectors::multiply(d, Vectors::to_float(scale)));
  }
}

// Those of the halves of a block.
template <class Format>
HWY_INLINE void store_half_scales(Panel& panel, int block, Int low, Int high, Float d) {
  store_integer_scale(panel, 2 * block, low, d);
  store_integer_scale(panel, 2 * block + 1, high, d);
  if constexpr (kHasWords && Format::kOffsetShift != 0) {
    const Int first = masked(Vectors::shift_left(low, Format::kOffsetShift), 0xFFFF);
    const Int second = Vectors::shift_left(high, 16 + Format::kOffsetShift);
    Vectors::store(panel.offset_scales[block], Vectors::bit_or(first, second));
  }
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

// Likewise, of indices into a table of integers, 128 more than they are.
HWY_INLINE void store_wide_nibbles(const PanelRows& rows, std::int64_t block, Panel& panel, __m128i table) {
  Int bytes[4];
  load_16(rows, bytes);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store_wide(panel, 8 * block + i, Vectors::lookup(table, low_nibbles(bytes[i])));
    store_wide(panel, 8 * block + 4 + i, Vectors::lookup(table, high_nibbles(bytes[i])));
  }
}

}  // namespace
}  // namespace winnow::kernels
