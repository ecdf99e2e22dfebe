// A panel holds as many weight rows as a vector has lanes, unpacked to 8-bit integers, with four consecutive weights of
// a row in a lane. Included after Vectors is defined, like everything that int8_product-inl.h includes.
#pragma once

#include "kernels/products/int8_rows-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::int64_t kPanelBlocks = kChunkBlocks;  // blocks of 32 weights that are unpacked at a time

// If products of bytes are 16-bit words, integers above 127 are unpacked as words, and integer scales are applied while
// words are widened.
inline constexpr bool kHasWords = Vectors::kDotSaturates;
template <class Format>
inline constexpr bool kIsOfWords = kHasWords&& Format::kMaxInteger > 127;
template <class Format>
inline constexpr bool kScalesWords = kHasWords&& Format::kHasIntegerScales;

// Integers above 127 are unpacked with 128 added; if words or signed bytes are multiplied they have no offset.
template <class Format>
inline constexpr bool kHasOffset =
    Format::kOffsetShift != 0 && !((kHasWords || Vectors::kDotIsSigned) && Format::kMaxInteger > 127);

HWY_INLINE Int masked(Int x, std::uint32_t mask) {
  return Vectors::bit_and(x, Vectors::set(static_cast<std::int32_t>(mask)));
}
HWY_INLINE Int masked_right(Int x, int shift, std::uint32_t mask) {
  return masked(Vectors::shift_right(x, shift), mask);
}
HWY_INLINE Int low_nibbles(Int x) { return masked(x, 0x0F0F0F0F); }
HWY_INLINE Int high_nibbles(Int x) { return masked_right(x, 4, 0x0F0F0F0F); }
HWY_INLINE Int byte_of(Int x, int i) { return masked_right(x, 8 * i, 0xFF); }
HWY_INLINE Int with_other_sign(Int bytes) {
  return Vectors::bit_xor(bytes, Vectors::set(static_cast<std::int32_t>(0x80808080U)));
}
HWY_INLINE Float high_half(Int x) { return Vectors::halves(Vectors::shift_right(x, 16)); }

// The number of groups of four whose products fit into 16 bits and share a scale: a power of two.
template <class Format>
inline constexpr int kProductsOfAWord =
    std::min(Format::kHalves ? 4 : 8,
             static_cast<int>(std::bit_floor(32767U / (2U * 127U *
                                                       std::min(127U, static_cast<unsigned>(Format::kMaxInteger))))));

HWY_INLINE Int in_both_words(Int x) { return Vectors::bit_or(masked(x, 0xFFFF), Vectors::shift_left(x, 16)); }

// A panel of unpacked weights: weight = scale * (integer - offset) + minimum; with kScalesWords factor * scale *
// (integer - offset) + minimum. Formats unpack into it (int8_formats-inl.h), or into StreamedProducts.
struct Panel {
  // [four weights][lane][weight]; for words [four weights][first and third, second and fourth][lane][weight]
  alignas(64) std::uint8_t q[kPanelBlocks * 8 * (kHasWords ? 2 : 1)][4 * kLanes];
  // By block, or by half block. With kScalesWords the scales are integers, in both words of a lane.
  alignas(64) float scales[kPanelBlocks * 2][kLanes];
  union {
    alignas(64) float minima[kPanelBlocks * 2][kLanes];  // by block, or by half block
    // With kScalesWords, for formats with scales by half blocks: by block, the scales of its halves in a word each,
    // times the offset.
    alignas(64) std::int32_t offset_scales[kPanelBlocks][kLanes];
  };
  alignas(64) float factors[kLanes];

  HWY_INLINE void set_scale(std::int64_t i, Float scale) { Vectors::store_float(scales[i], scale); }
  HWY_INLINE void set_minimum(std::int64_t i, Float minimum) { Vectors::store_float(minima[i], minimum); }

  // Set the factor d of integer scales for a chunk of 256 weights, and, with kScalesWords, these scales.
  HWY_INLINE void set_factor(Float d) { Vectors::store_float(factors, d); }
  HWY_INLINE void set_word_scale(int i, Int words) { Vectors::store(scales[i], words); }
  HWY_INLINE void set_offset_scales(int block, Int words) { Vectors::store(offset_scales[block], words); }

  // Stores weights [4 group, 4 group + 4) of every row.
  HWY_INLINE void put(std::int64_t group, Int integers) { Vectors::store(q[group], integers); }
  // Stores such weights that have 128 added.
  template <class V = Vectors>
  HWY_INLINE void put_wide(std::int64_t group, Int x) {
    if constexpr (kHasWords) {
      const Int bytes = with_other_sign(x);
      V::store(q[2 * group], V::even_bytes(bytes));
      V::store(q[2 * group + 1], V::odd_bytes(bytes));
    } else {
      put(group, Vectors::kDotIsSigned ? with_other_sign(x) : x);
    }
  }
  // Called after all integers of blocks [first, first + n), or of half 0 or 1 of each.
  HWY_INLINE void end_blocks(std::int64_t /*first*/, int /*n*/) {}
  HWY_INLINE void end_halves(std::int64_t /*first*/, int /*n*/, int /*half*/) {}
};

}  // namespace
}  // namespace winnow::kernels
