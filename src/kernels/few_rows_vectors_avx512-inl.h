// Vectors for products of few rows, by AVX-512: 16 numbers, or 64 bytes, which are two blocks of a weight row.
// few_rows_vectors_avx2-inl.h has the same names for pairs of 256-bit vectors.
#pragma once

namespace winnow::kernels {
namespace {

using Bits = __m512i;
using Floats = __m512;

constexpr bool kDotSaturates = false;
constexpr int kChains = 2;  // of sums: the processor does not wait for one while it adds to the other

inline __m128i load_16(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m256i load_32(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// Bytes ---------------------------------------------------------------------------------------------------------------

inline Bits load_64(const std::byte* from) { return _mm512_loadu_si512(from); }
// 32 bytes of each.
inline Bits two_blocks(const std::byte* a, const std::byte* b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(a)), load_32(b), 1);
}
inline Bits masked(Bits x, char mask) { return _mm512_and_si512(x, _mm512_set1_epi8(mask)); }
inline Bits flipped(Bits x, char bits) { return _mm512_xor_si512(x, _mm512_set1_epi8(bits)); }
inline Bits shifted(Bits x, int n) { return _mm512_srli_epi32(x, static_cast<unsigned>(n)); }
inline Bits looked_up(__m128i table, Bits indices) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices);
}

// A dword for each block.
inline Bits dwords_of_blocks(int first, int second) {
  return _mm512_mask_set1_epi32(_mm512_set1_epi32(first), 0xFF00, second);
}

// 32 bytes for both blocks, whose dwords are shifted right for each.
inline Bits shifted_for_both(const std::byte* from, int first, int second) {
  return _mm512_srlv_epi32(_mm512_broadcast_i64x4(load_32(from)), dwords_of_blocks(first, second));
}

// x with the bits `mask` of 32 bytes for both blocks, whose dwords are rotated left for each.
inline Bits with_bits(Bits x, const std::byte* from, int first, int second, char mask) {
  const Bits bits = _mm512_rolv_epi32(_mm512_broadcast_i64x4(load_32(from)), dwords_of_blocks(first, second));
  return _mm512_ternarylogic_epi64(x, bits, _mm512_set1_epi8(mask), 0xF8);  // a | b & c
}

// Bit i of `bits` adds 16 to byte i.
inline Bits with_sixteens(Bits x, std::uint64_t bits) { return _mm512_mask_add_epi8(x, bits, x, _mm512_set1_epi8(16)); }

// Integers of two blocks of 16 bytes, whose low halves are a block's first 16, the high halves the others.
inline Bits nibbles(const std::byte* a, const std::byte* b) {
  const Bits both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(a)), 0xFF00, load_16(b));
  return masked(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)), 0x0F);
}

// Products of bytes as sums of four; q is unsigned.
template <bool /*kIsWide*/>
inline Bits dot(Bits q, Bits x) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), q, x);
}

// Dwords --------------------------------------------------------------------------------------------------------------

// Shifted right, as many for the second eight as for the first.
inline Bits shifted_each(Bits x, __m256i n) { return _mm512_srlv_epi32(x, _mm512_broadcast_i64x4(n)); }
inline Bits masked_dwords(Bits x, int mask) { return _mm512_and_si512(x, _mm512_set1_epi32(mask)); }
inline Bits either(Bits a, Bits b) { return _mm512_or_si512(a, b); }
inline Bits less(Bits x, int n) { return _mm512_sub_epi32(x, _mm512_set1_epi32(n)); }

// Numbers -------------------------------------------------------------------------------------------------------------

inline Floats zeros() { return _mm512_setzero_ps(); }
inline Floats load_numbers(const float* from) { return _mm512_load_ps(from); }
// Eight numbers, each twice.
inline Floats load_each_twice(const float* from) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_load_ps(from)));
}
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats multiply(Floats a, float b) { return _mm512_mul_ps(a, _mm512_set1_ps(b)); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats negated(Floats x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0F)); }
inline float total(Floats x) { return _mm512_reduce_add_ps(x); }

inline Floats numbers_of(Bits dwords) { return _mm512_cvtepi32_ps(dwords); }
inline Floats numbers_of_bytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)); }
inline Floats numbers_of_signed_bytes(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }

// Numbers `first` and `second` of four, for eight lanes each.
template <int first, int second>
inline Floats two_of(__m128 four) {
  const __m512i lanes = _mm512_setr_epi32(first, first, first, first, first, first, first, first, second, second,
                                          second, second, second, second, second, second);
  return _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(four));
}

// A float16 for each eight lanes.
inline Floats two_float16(std::int16_t first, std::int16_t second) {
  const __m256i low = _mm256_castsi128_si256(_mm_set1_epi16(first));
  return _mm512_cvtph_ps(_mm256_inserti128_si256(low, _mm_set1_epi16(second), 1));
}

// Half of 2 to the power of each dword less 127: below 2 that is a subnormal number.
inline Floats half_powers(Bits exponents) {
  const __m512i normal = _mm512_slli_epi32(less(exponents, 1), 23);
  const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), exponents);
  const __mmask16 is_small = _mm512_cmplt_epi32_mask(exponents, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, subnormal));
}

// Scales and minima of a group: of 16 blocks. weight = scale * integer + minimum, with integers >= 0.
struct BlockScales {
  Floats scale;
  Floats minimum;
};

// Of the 16 halves of 8 blocks.
struct HalfScales {
  Floats scale;
  Floats minimum;
};

// scales: signed; minus `offset`, that many, is each one's minimum
inline HalfScales half_scales(__m128i scales, std::int16_t factor, float offset) {
  const Floats scale = multiply(numbers_of_signed_bytes(scales), two_float16(factor, factor));
  return {scale, multiply(scale, -offset)};
}
inline HalfScales half_scales(__m128i scales, std::int16_t factor, __m128i minima, std::int16_t minus_factor) {
  return {multiply(numbers_of_signed_bytes(scales), two_float16(factor, factor)),
          negated(multiply(numbers_of_signed_bytes(minima), two_float16(minus_factor, minus_factor)))};
}

// Of a row's half block, with which minima are multiplied.
using HalfSum = float;
inline HalfSum half_sum(float scale, std::int32_t sum) { return scale * static_cast<float>(sum); }

// A group's scales times those of a row: what the products of each pair of blocks are multiplied by.
template <class Scales>
class RowScales {
 public:
  // Returns the products of the minima.
  Floats set(const Scales& group, const float* scales, const float* sums, const HalfSum* half_sums) {
    scales_ = multiply(group.scale, kHalves ? load_each_twice(scales) : load_numbers(scales));
    return multiply(group.minimum, load_numbers(kHalves ? half_sums : sums));
  }
  template <bool kIsWide>
  Floats add_products(const Scales& /*group*/, std::int64_t pair, Bits q, Bits x, Floats sum) const {
    const __m512i lanes = kHalves ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                                  : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const auto step = static_cast<int>(kHalves ? 4 * pair : 2 * pair);
    const Floats scale = _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(step)), scales_);
    return multiply_add(numbers_of(dot<kIsWide>(q, x)), scale, sum);
  }

 private:
  static constexpr bool kHalves = std::is_same_v<Scales, HalfScales>;
  Floats scales_;
};

// Where the first and second words of 16 blocks are, n of which begin within 64 bytes.
constexpr std::array<std::uint16_t, 32> head_words(int bytes, int n) {
  std::array<std::uint16_t, 32> words{};
  for (int i = 0; i < 32; ++i) {
    words[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(i % 16 % n * bytes / 2 + i / 16);
  }
  return words;
}

// The first two words of 16 blocks; of n blocks, zero for the others. (Blocks of odd size: the words that the first
// bytes are in.)
template <int bytes>
class BlockHeads {
 public:
  // The first words in the lower half, the second words in the higher one.
  BlockHeads(const std::byte* group, std::int64_t n) : words_(_mm512_setzero_si512()) {
    static constexpr int kPerVector = (64 - 4) / bytes + 1;
    static constexpr std::array<std::uint16_t, 32> kWords = head_words(bytes, kPerVector);
    const __m512i words = _mm512_loadu_si512(kWords.data());
    const std::int64_t n_words = n * bytes / 2;
#pragma GCC unroll 8
    for (int first = 0; first < 16; first += kPerVector) {
      if (first >= n) break;
      const std::int64_t n_left = n_words - first * bytes / 2;
      const auto readable = n_left >= 32 ? ~__mmask32{0} : (__mmask32{1} << n_left) - 1;
      const std::uint32_t blocks = ((1U << kPerVector) - 1U) << first & 0xFFFFU;
      words_ = _mm512_mask_permutexvar_epi16(words_, blocks | blocks << 16, words,
                                             _mm512_maskz_loadu_epi16(readable, group + first * bytes));
    }
  }

  Floats first_float16() const { return _mm512_cvtph_ps(_mm512_castsi512_si256(words_)); }
  Floats second_float16() const { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words_, 1)); }
  // As dwords.
  Bits first_bytes() const {
    const __m512i words = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words_));
    const int odd = bytes % 2 * 8;
    const __m512i sides = _mm512_setr_epi32(0, odd, 0, odd, 0, odd, 0, odd, 0, odd, 0, odd, 0, odd, 0, odd);
    return masked_dwords(_mm512_srlv_epi32(words, sides), 0xFF);
  }

 private:
  __m512i words_;
};

}  // namespace
}  // namespace winnow::kernels
