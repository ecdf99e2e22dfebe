// How the block formats lie in memory, for products of few rows: a group's scales and minima, sixteen to a vector, and
// its integers, 64 at a time. Included by few_rows_product.cc behind its attributes.
#pragma once

namespace winnow::kernels {
namespace {

inline __m128i load_16(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m256i load_32(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline __m512i load_32_twice(const std::byte* from) { return _mm512_broadcast_i64x4(load_32(from)); }

template <class T>
inline T load(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof(x));
  return x;
}

// A dword for each half of a vector.
inline __m512i halves_of(int low, int high) { return _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xFF00, high); }

// Integers of two blocks of 16 bytes, whose low halves are a block's first 16, the high halves the others.
inline __m512i nibbles(const std::byte* a, const std::byte* b) {
  const __m512i both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(a)), 0xFF00, load_16(b));
  const __m512i shifted = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
  return _mm512_and_si512(shifted, _mm512_set1_epi8(0x0F));
}

// Integers of two blocks in 32 bytes: the low halves are the first block, the high halves the second.
inline __m512i nibbles_of_both(const std::byte* from) {
  return _mm512_and_si512(_mm512_srlv_epi32(load_32_twice(from), halves_of(0, 4)), _mm512_set1_epi8(0x0F));
}

// x with the bits `mask` of the bytes of `high`, which are rotated left within their dword.
inline __m512i with_bits(__m512i x, __m512i high, __m512i rotation, char mask) {
  return _mm512_ternarylogic_epi64(x, _mm512_rolv_epi32(high, rotation), _mm512_set1_epi8(mask), 0xF8);  // a | b & c
}

inline __m512i looked_up(__m128i table, __m512i indices) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices);
}

// weight = scale * integer + minimum, with integers >= 0
struct Scales {
  __m512 scale;
  __m512 minimum;
};

inline Scales with_offset(__m512 scale, float offset) { return {scale, _mm512_mul_ps(scale, _mm512_set1_ps(-offset))}; }

// Where the first and second words of 16 blocks are, n of which begin within 64 bytes.
constexpr std::array<std::uint16_t, 32> head_words(int bytes, int n) {
  std::array<std::uint16_t, 32> words{};
  for (int i = 0; i < 32; ++i) {
    words[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i % 16 % n * bytes / 2 + i / 16);
  }
  return words;
}

// Formats of blocks of 32. A group is 16 of them; a block begins with a float16 scale, perhaps followed by a float16
// minimum.
template <int bytes>
struct SmallBlocks {
  static constexpr bool kHalves = false;  // a scale for each half block
  static constexpr std::int64_t kGroupBytes = 16 * bytes;

  // The first words of the blocks in the lower half, the second words in the higher one; of n blocks, zero for the
  // others. (Blocks of odd size: the words that the first bytes are in.)
  static __m512i heads(const std::byte* group, std::int64_t n) {
    static constexpr int kPerVector = (64 - 4) / bytes + 1;
    static constexpr std::array<std::uint16_t, 32> kWords = head_words(bytes, kPerVector);
    const __m512i words = _mm512_loadu_si512(kWords.data());
    const std::int64_t n_words = n * bytes / 2;
    __m512i found = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int first = 0; first < 16; first += kPerVector) {
      if (first >= n) break;
      const std::int64_t n_left = n_words - first * bytes / 2;
      const auto readable = n_left >= 32 ? ~__mmask32{0} : (__mmask32{1} << n_left) - 1;
      const std::uint32_t blocks = ((1U << kPerVector) - 1U) << first & 0xFFFFU;
      found = _mm512_mask_permutexvar_epi16(found, blocks | blocks << 16, words,
                                            _mm512_maskz_loadu_epi16(readable, group + first * bytes));
    }
    return found;
  }
  static __m512 first_float16(__m512i heads) { return _mm512_cvtph_ps(_mm512_castsi512_si256(heads)); }
  static __m512 second_float16(__m512i heads) { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(heads, 1)); }

  static Scales scale_and_minimum(const std::byte* group, std::int64_t n) {
    const __m512i words = heads(group, n);
    return {first_float16(words), second_float16(words)};
  }
  static Scales scale_and_offset(const std::byte* group, std::int64_t n, float offset) {
    return with_offset(first_float16(heads(group, n)), offset);
  }

  // Blocks 2 pair and 2 pair + 1; there is perhaps no second one of n.
  static const std::byte* even(const std::byte* group, std::int64_t pair) { return group + 2 * pair * bytes; }
  static const std::byte* odd(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return even(group, pair) + (2 * pair + 1 < n ? bytes : 0);
  }
};

struct Q4_0Rows : SmallBlocks<18> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 8); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return nibbles(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct Q4_1Rows : SmallBlocks<20> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_minimum(group, n); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return nibbles(even(group, pair) + 4, odd(group, pair, n) + 4);
  }
};

// Four bytes of fifth bits, then 16 bytes of the others.
inline __m512i five_bits(const std::byte* a, const std::byte* b) {
  const std::uint64_t fifth = load<std::uint32_t>(a) | std::uint64_t{load<std::uint32_t>(b)} << 32;
  const __m512i low = nibbles(a + 4, b + 4);
  return _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16));
}

struct Q5_0Rows : SmallBlocks<22> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 16); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return five_bits(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct Q5_1Rows : SmallBlocks<24> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_minimum(group, n); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return five_bits(even(group, pair) + 4, odd(group, pair, n) + 4);
  }
};

struct Q8_0Rows : SmallBlocks<34> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 128); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    const __m256i a = load_32(even(group, pair) + 2), b = load_32(odd(group, pair, n) + 2);
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
  }
};

// The values of iq4_nl and iq4_xs, 128 more.
inline __m512i iq4_values(const std::byte* a, const std::byte* b) {
  const __m128i table = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15);
  return looked_up(table, nibbles(a, b));
}

struct IQ4_NLRows : SmallBlocks<18> {
  static Scales scales(const std::byte* group, std::int64_t n) { return scale_and_offset(group, n, 128); }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    return iq4_values(even(group, pair) + 2, odd(group, pair, n) + 2);
  }
};

struct MXFP4Rows : SmallBlocks<17> {
  static Scales scales(const std::byte* group, std::int64_t n) {
    // Half of 2 to the power of the byte less 127: below 2 that is a subnormal number.
    const __m512i words = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(heads(group, n)));
    const __m512i sides = _mm512_setr_epi32(0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8, 0, 8);
    const __m512i exponent = _mm512_and_si512(_mm512_srlv_epi32(words, sides), _mm512_set1_epi32(0xFF));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
    const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), exponent);
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(exponent, _mm512_set1_epi32(2));
    return with_offset(_mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, subnormal)), 16);
  }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t n) {
    // Twice the values of a float of 4 bits, 16 more.
    const __m128i table = _mm_setr_epi8(16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4);
    return looked_up(table, nibbles(even(group, pair) + 1, odd(group, pair, n) + 1));
  }
};

// A float16 for each half of a vector.
inline __m512 two_float16(const std::byte* low, const std::byte* high) {
  const __m128i a = _mm_set1_epi16(load<std::int16_t>(low)), b = _mm_set1_epi16(load<std::int16_t>(high));
  return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
}

// Formats of blocks of 256 with a scale for each 32: a group is two of them, perhaps only the first.
template <int bytes>
struct PairedBlocks {
  static constexpr bool kHalves = false;
  static constexpr std::int64_t kGroupBytes = 2 * bytes;

  static const std::byte* second(const std::byte* group, std::int64_t n) { return n < 16 ? group : group + bytes; }
  static const std::byte* block(const std::byte* group, std::int64_t pair) { return group + pair / 4 * bytes; }
  // Where there is no second block its rows' scales are zero.
  static __m512 factors(const std::byte* group, std::int64_t n, int at) {
    return two_float16(group + at, second(group, n) + at);
  }
};

// 8 scales and 8 minima of 6 bits in 12 bytes, behind a float16 for each kind.
template <int bytes>
struct KScaledBlocks : PairedBlocks<bytes> {
  static Scales scales(const std::byte* group, std::int64_t n) {
    const std::byte* second = PairedBlocks<bytes>::second(group, n);
    const __m256i heads = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(group)), load_16(second), 1);
    // Four low scales, four high ones, four low minima, four high ones.
    const __m256i low = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_shuffle_epi32(heads, 0b11'10'11'01), _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4)),
        _mm256_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F,
                          0x0F0F0F0F));
    const __m256i top = _mm256_srli_epi32(_mm256_shuffle_epi32(heads, 0b10'10'01'01), 2);
    const __m256i all = _mm256_ternarylogic_epi32(
        low, top, _mm256_setr_epi32(0, 0x30303030, 0, 0x30303030, 0, 0x30303030, 0, 0x30303030), 0xF8);
    const __m256i sorted = _mm256_permute4x64_epi64(all, 0b11'01'10'00);
    const __m512 scale = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(sorted)));
    const __m512 minimum = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256(sorted, 1)));
    // The float16 numbers are the first of each block's dwords; the minima are subtracted.
    const __m128i halves = _mm_xor_si128(
        _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(heads, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0))),
        _mm_set1_epi32(static_cast<int>(0x80000000U)));
    const __m512 factors = _mm512_castps128_ps512(_mm_cvtph_ps(halves));
    const __m512i of_scale = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    const __m512i of_minimum = _mm512_setr_epi32(1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3);
    return {_mm512_mul_ps(scale, _mm512_permutexvar_ps(of_scale, factors)),
            _mm512_mul_ps(minimum, _mm512_permutexvar_ps(of_minimum, factors))};
  }
};

struct Q4_KRows : KScaledBlocks<144> {
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    return nibbles_of_both(block(group, pair) + 16 + pair % 4 * 32);
  }
};

struct Q5_KRows : KScaledBlocks<176> {
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const std::byte* from = block(group, pair);
    const int b = static_cast<int>(pair % 4) * 2;  // bit b of byte i: of weight i of block b
    return with_bits(nibbles_of_both(from + 48 + pair % 4 * 32), load_32_twice(from + 16),
                     halves_of((36 - b) % 32, (35 - b) % 32), 0x10);
  }
};

struct IQ4_XSRows : PairedBlocks<136> {
  static Scales scales(const std::byte* group, std::int64_t n) {
    const std::byte* other = second(group, n);
    const __m512i low =
        _mm512_and_si512(_mm512_srlv_epi32(halves_of(load<int>(group + 4), load<int>(other + 4)),
                                           _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28)),
                         _mm512_set1_epi32(0x0F));
    const __m512i high =  // two bits each, behind the float16
        _mm512_srlv_epi32(halves_of(load<int>(group), load<int>(other)),
                          _mm512_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26, 12, 14, 16, 18, 20, 22, 24, 26));
    const __m512i scale = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi32(0x30), 0xF8);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
    return with_offset(_mm512_mul_ps(factors(group, n, 0), numbers), 128);
  }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const std::byte* from = block(group, pair) + 8 + pair % 4 * 32;
    return iq4_values(from, from + 16);
  }
};

// Formats of blocks of 256 with a scale for each 16: a group is one of them.
template <int bytes>
struct HalvedBlocks {
  static constexpr bool kHalves = true;
  static constexpr std::int64_t kGroupBytes = bytes;
  static __m512 factor(const std::byte* from) { return two_float16(from, from); }
};

// Two of the four blocks whose pairs of bits share 32 bytes.
inline __m512i two_bits(const std::byte* from, std::int64_t pair) {
  const int shift = static_cast<int>(pair % 2) * 4;
  return _mm512_and_si512(_mm512_srlv_epi32(load_32_twice(from + pair / 2 * 32), halves_of(shift, shift + 2)),
                          _mm512_set1_epi8(3));
}

struct Q2_KRows : HalvedBlocks<84> {
  static Scales scales(const std::byte* group, std::int64_t /*n*/) {
    const __m128i bytes = load_16(group), mask = _mm_set1_epi8(0x0F);
    const __m512i scale = _mm512_cvtepu8_epi32(_mm_and_si128(bytes, mask));
    const __m512i minimum = _mm512_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask));
    const __m512 d_min = _mm512_xor_ps(factor(group + 82), _mm512_set1_ps(-0.0F));
    return {_mm512_mul_ps(_mm512_cvtepi32_ps(scale), factor(group + 80)),
            _mm512_mul_ps(_mm512_cvtepi32_ps(minimum), d_min)};
  }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    return two_bits(group + 16, pair);
  }
};

struct Q3_KRows : HalvedBlocks<110> {
  static Scales scales(const std::byte* group, std::int64_t /*n*/) {
    const auto low = load<std::uint64_t>(group + 96);
    const __m128i nibbles = _mm_and_si128(
        _mm_set_epi64x(static_cast<std::int64_t>(low >> 4), static_cast<std::int64_t>(low)), _mm_set1_epi8(0x0F));
    const __m128i high = _mm_and_si128(
        _mm_srlv_epi32(_mm_set1_epi32(load<int>(group + 104)), _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    const __m512i scale = _mm512_cvtepu8_epi32(_mm_or_si128(nibbles, _mm_slli_epi32(high, 4)));
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
    return with_offset(_mm512_mul_ps(numbers, factor(group + 108)), 4);
  }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    const int b = static_cast<int>(pair) * 2;  // bit b of byte i: of weight i of block b
    return with_bits(two_bits(group + 32, pair), load_32_twice(group), halves_of((34 - b) % 32, (33 - b) % 32), 4);
  }
};

struct Q6_KRows : HalvedBlocks<210> {
  static Scales scales(const std::byte* group, std::int64_t /*n*/) {
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16(group + 192)));
    return with_offset(_mm512_mul_ps(numbers, factor(group + 208)), 32);
  }
  static __m512i integers(const std::byte* group, std::int64_t pair, std::int64_t /*n*/) {
    // 64 bytes hold two blocks in their low halves and two in their high halves, 32 bytes the high bits of all four.
    const bool is_high = pair % 2 != 0;
    const __m512i bytes = _mm512_loadu_si512(group + pair / 2 * 64);
    const __m512i low = _mm512_and_si512(is_high ? _mm512_srli_epi32(bytes, 4) : bytes, _mm512_set1_epi8(0x0F));
    return with_bits(low, load_32_twice(group + 128 + pair / 2 * 32), is_high ? halves_of(0, 30) : halves_of(4, 2),
                     0x30);
  }
};

}  // namespace
}  // namespace winnow::kernels
