// How the block formats lie in memory, for products of few rows: a group's scales and minima, sixteen of them, and its
// integers, 64 at a time. Included by few_rows_product-inl.h.
#pragma once

namespace winnow::kernels {
namespace {

template <class T>
inline T load(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

// Integers of two blocks in 32 bytes: the low halves are the first block, the high halves the second.
inline Bits nibbles_of_both(const std::byte* from) { return masked(shifted_for_both(from, 0, 4), 0x0F); }

// Signed bytes as a wide dot product takes them, and what it adds to each.
constexpr int kWideOffset = kDotSaturates ? 0 : 128;
inline Bits wide(Bits signed_bytes) { return kDotSaturates ? signed_bytes : flipped(signed_bytes, -128); }

inline BlockScales with_offset(Floats scale, float offset) { return {scale, multiply(scale, -offset)}; }

// Formats of blocks of 32. A group is 16 of them; a block begins with a float16 scale, perhaps followed by a float16
// minimum.
template <int bytes>
struct SmallBlocks {
  using Scales = BlockScales;
  static constexpr bool kIsWide = false;  // integers above 127
  static constexpr std::int64_t kGroupBytes = 16 * bytes;

  static BlockScales scale_and_minimum(const std::byte* group, std::int64_t n) {
    const BlockHeads<bytes> heads(group, n);
    return {heads.first_float16(), heads.second_float16()};
  }
  static BlockScales scale_and_offset(const std::byte* group, std::int64_t n, float offset) {
    return with_offset(BlockHeads<bytes>(group, n).first_float16(), offset);
  }

  // Blocks 2 pair and 2 pair + 1; there is perhaps no second one of n.
  static const std::byte* even(const std::byte* group, std::int64_t pair) { return group + 2 * pair * bytes; }
  static const std::byte* odd(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return even(group, pair) + (2 * pair + 1 < n ? bytes : 0);
  }
};

struct Q4_0Rows : SmallBlocks<18> {
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 8); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return nibbles(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct Q4_1Rows : SmallBlocks<20> {
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_minimum(group, n); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return nibbles(even(group, pair) + 4, odd(group, pair, n) + 4);
  }
};

// Four bytes of fifth bits, then 16 bytes of the others.
inline Bits five_bits(const std::byte* a, const std::byte* b) {
  const std::uint64_t fifth = load<std::uint32_t>(a) | std::uint64_t{load<std::uint32_t>(b)} << 32;
  return with_sixteens(nibbles(a + 4, b + 4), fifth);
}

struct Q5_0Rows : SmallBlocks<22> {
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 16); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return five_bits(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct Q5_1Rows : SmallBlocks<24> {
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_minimum(group, n); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return five_bits(even(group, pair) + 4, odd(group, pair, n) + 4);
  }
};

struct Q8_0Rows : SmallBlocks<34> {
  static constexpr bool kIsWide = true;
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, kWideOffset); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return wide(two_blocks(even(group, pair) + 2, odd(group, pair, n) + 2));
  }
};

// The values of iq4_nl and iq4_xs.
inline Bits iq4_values(const std::byte* a, const std::byte* b) {
  constexpr auto kOffset = static_cast<char>(kDotSaturates ? 0 : -128);  // 128 more, as a byte
  const __m128i values = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return looked_up(_mm_xor_si128(values, _mm_set1_epi8(kOffset)), nibbles(a, b));
}

struct IQ4_NLRows : SmallBlocks<18> {
  static constexpr bool kIsWide = true;
  static BlockScales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, kWideOffset); }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return iq4_values(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct MXFP4Rows : SmallBlocks<17> {
  static BlockScales scales(const std::byte* group, std::int64_t n) {
    return with_offset(half_powers(BlockHeads<17>(group, n).first_bytes()), 16);
  }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    // Twice the values of a float of 4 bits, 16 more.
    const __m128i table = _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    return looked_up(table, nibbles(even(group, pair) + 1, odd(group, pair, n) + 1));
  }
};

// Formats of blocks of 256 with a scale for each 32: a group is two of them, perhaps only the first.
template <int bytes>
struct PairedBlocks {
  using Scales = BlockScales;
  static constexpr bool kIsWide = false;
  static constexpr std::int64_t kGroupBytes = 2 * bytes;

  static const std::byte* second(const std::byte* group, std::int64_t n) { return n < 16 ? group : group + bytes; }
  static const std::byte* block(const std::byte* group, std::int64_t pair) { return group + pair / 4 * bytes; }
  // Where there is no second block its rows' scales are zero.
  static Floats factors(const std::byte* group, std::int64_t n, int at) {
    return two_float16(load<std::int16_t>(group + at), load<std::int16_t>(second(group, n) + at));
  }
};

// 8 scales and 8 minima of 6 bits in 12 bytes, behind a float16 for each kind.
template <int bytes>
struct KScaledBlocks : PairedBlocks<bytes> {
  static BlockScales scales(const std::byte* group, std::int64_t n) {
    const std::byte* second = PairedBlocks<bytes>::second(group, n);
    const __m256i heads = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(group)), load_16(second), 1);
    // Four low scales, four high ones, four low minima, four high ones.
    const __m256i low = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_shuffle_epi32(heads, 0b11'10'11'01), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4)),
        _mm256_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F,
                          0x0F0F0F0F));
    const __m256i top = _mm256_srli_epi32(_mm256_shuffle_epi32(heads, 0b10'10'01'01), 2);
    const __m256i all = _mm256_or_si256(
        low, _mm256_and_si256(top, _mm256_setr_epi32(0, 0x30303030, 0, 0x30303030, 0, 0x30303030, 0, 0x30303030)));
    const __m256i sorted = _mm256_permute4x64_epi64(all, 0b11'01'10'00);
    const Floats scale = numbers_of_bytes(_mm256_castsi256_si128(sorted));
    const Floats minimum = numbers_of_bytes(_mm256_extracti128_si256(sorted, 1));
    // The float16 numbers are the first of each block's dwords; the minima are subtracted.
    const __m128i halves = _mm_xor_si128(
        _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(heads, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0))),
        _mm_set1_epi32(static_cast<int>(0x80000000U)));
    const __m128 factors = _mm_cvtph_ps(halves);
    return {multiply(scale, two_of<0, 2>(factors)), multiply(minimum, two_of<1, 3>(factors))};
  }
};

struct Q4_KRows : KScaledBlocks<144> {
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    return nibbles_of_both(block(group, pair) + 16 + pair % 4 * 32);
  }
};

struct Q5_KRows : KScaledBlocks<176> {
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const std::byte* from = block(group, pair);
    const int b = static_cast<int>(pair % 4) * 2;  // bit b of byte i: of weight i of block b
    return with_bits(nibbles_of_both(from + 48 + pair % 4 * 32), from + 16, (36 - b) % 32, (35 - b) % 32, 0x10);
  }
};

struct IQ4_XSRows : PairedBlocks<136> {
  static constexpr bool kIsWide = true;
  static BlockScales scales(const std::byte* group, std::int64_t n) {
    const std::byte* other = second(group, n);
    const Bits low = shifted_each(dwords_of_blocks(load<int>(group + 4), load<int>(other + 4)),
                                  _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const Bits high =  // two bits each, behind the float16
        shifted_each(dwords_of_blocks(load<int>(group), load<int>(other)),
                     _mm256_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26));
    const Bits scale = either(masked_dwords(low, 0x0F), masked_dwords(high, 0x30));
    return with_offset(multiply(factors(group, n, 0), numbers_of(less(scale, 32))), kWideOffset);
  }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const std::byte* from = block(group, pair) + 8 + pair % 4 * 32;
    return iq4_values(from, from + 16);
  }
};

// Formats of blocks of 256 with a scale for each 16: a group is one of them.
template <int bytes>
struct HalvedBlocks {
  using Scales = HalfScales;
  static constexpr bool kIsWide = false;
  static constexpr std::int64_t kGroupBytes = bytes;
};

// Two of the four blocks whose pairs of bits share 32 bytes.
inline Bits two_bits(const std::byte* from, std::int64_t pair) {
  const int shift = static_cast<int>(pair % 2) * 4;
  return masked(shifted_for_both(from + pair / 2 * 32, shift, shift + 2), 3);
}

struct Q2_KRows : HalvedBlocks<84> {
  static HalfScales scales(const std::byte* group, std::int64_t /*n*/) {
    const __m128i bytes = load_16(group), mask = _mm_set1_epi8(0x0F);
    return half_scales(_mm_and_si128(bytes, mask), load<std::int16_t>(group + 80),
                       _mm_and_si128(_mm_srli_epi16(bytes, 4), mask), load<std::int16_t>(group + 82));
  }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    return two_bits(group + 16, pair);
  }
};

struct Q3_KRows : HalvedBlocks<110> {
  static HalfScales scales(const std::byte* group, std::int64_t /*n*/) {
    const auto low = load<std::uint64_t>(group + 96);
    const __m128i nibbles = _mm_and_si128(
        _mm_set_epi64x(static_cast<std::int64_t>(low >> 4), static_cast<std::int64_t>(low)), _mm_set1_epi8(0x0F));
    const __m128i high = _mm_and_si128(
        _mm_srlv_epi32(_mm_set1_epi32(load<int>(group + 104)), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    const __m128i scale = _mm_sub_epi8(_mm_or_si128(nibbles, _mm_slli_epi32(high, 4)), _mm_set1_epi8(32));
    return half_scales(scale, load<std::int16_t>(group + 108), 4);
  }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const int b = static_cast<int>(pair) * 2;  // bit b of byte i: of weight i of block b
    return with_bits(two_bits(group + 32, pair), group, (34 - b) % 32, (33 - b) % 32, 4);
  }
};

struct Q6_KRows : HalvedBlocks<210> {
  static HalfScales scales(const std::byte* group, std::int64_t /*n*/) {
    return half_scales(load_16(group + 192), load<std::int16_t>(group + 208), 32);
  }
  static Bits integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    // 64 bytes hold two blocks in their low halves and two in their high halves, 32 bytes the high bits of all four.
    const bool is_high = pair % 2 != 0;
    const Bits bytes = load_64(group + pair / 2 * 64);
    const Bits low = masked(is_high ? shifted(bytes, 4) : bytes, 0x0F);
    return with_bits(low, group + 128 + pair / 2 * 32, is_high ? 0 : 4, is_high ? 30 : 2, 0x30);
  }
};

}  // namespace
}  // namespace winnow::kernels
