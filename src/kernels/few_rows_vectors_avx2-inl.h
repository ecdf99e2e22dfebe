// Vectors for products of few rows, by AVX2: 16 numbers, or 64 bytes, as pairs of vectors, each of 32 bytes a block of
// a weight row. few_rows_vectors_avx512-inl.h has the same names. Dot products are in the files that include it.
#pragma once

namespace winnow::kernels {
namespace {

struct Bits {
  __m256i a, b;
};
struct Floats {
  __m256 a, b;
};

constexpr int kChains = 1;  // of sums: two vectors each

inline __m128i load_16(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m256i load_32(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// ggml's products are faster for these two.
constexpr bool has_product(WeightBlocks blocks) {
  return blocks != WeightBlocks::kQ5_1 && blocks != WeightBlocks::kQ2_K;
}

// Bytes ---------------------------------------------------------------------------------------------------------------

inline Bits load_64(const std::byte* from) { return {load_32(from), load_32(from + 32)}; }
// 32 bytes of each.
inline Bits two_blocks(const std::byte* a, const std::byte* b) { return {load_32(a), load_32(b)}; }
inline Bits masked(Bits x, char mask) {
  const __m256i bits = _mm256_set1_epi8(mask);
  return {_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)};
}
inline Bits flipped(Bits x, char bits) {
  const __m256i flip = _mm256_set1_epi8(bits);
  return {_mm256_xor_si256(x.a, flip), _mm256_xor_si256(x.b, flip)};
}
inline __m256i shifted(__m256i x, int n) { return n == 0 ? x : _mm256_srli_epi32(x, n); }
inline Bits shifted(Bits x, int n) { return {shifted(x.a, n), shifted(x.b, n)}; }
inline Bits looked_up(__m128i table, Bits indices) {
  const __m256i both = _mm256_broadcastsi128_si256(table);
  return {_mm256_shuffle_epi8(both, indices.a), _mm256_shuffle_epi8(both, indices.b)};
}

// A dword for each block.
inline Bits dwords_of_blocks(int first, int second) { return {_mm256_set1_epi32(first), _mm256_set1_epi32(second)}; }

// 32 bytes for both blocks, whose dwords are shifted right for each.
inline Bits shifted_for_both(const std::byte* from, int first, int second) {
  const __m256i x = load_32(from);
  return {shifted(x, first), shifted(x, second)};
}

// The dwords shifted by what rotates them left: the bits that are wanted stay within their bytes.
inline __m256i rotated(__m256i x, int n) { return n <= 8 ? _mm256_slli_epi32(x, n) : _mm256_srli_epi32(x, 32 - n); }

// x with the bits `mask` of 32 bytes for both blocks, whose dwords are rotated left for each.
inline Bits with_bits(Bits x, const std::byte* from, int first, int second, char mask) {
  const __m256i bits = load_32(from);
  const Bits wanted = masked({rotated(bits, first), rotated(bits, second)}, mask);
  return {_mm256_or_si256(x.a, wanted.a), _mm256_or_si256(x.b, wanted.b)};
}

// 16 in byte i where bit i is set.
inline __m256i sixteens(std::uint32_t bits) {
  const __m256i byte_of =
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201U));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), byte_of);
  const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
  return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

// Bit i of `bits` adds 16 to byte i, which has no bit there.
inline Bits with_sixteens(Bits x, std::uint64_t bits) {
  return {_mm256_or_si256(x.a, sixteens(static_cast<std::uint32_t>(bits))),
          _mm256_or_si256(x.b, sixteens(static_cast<std::uint32_t>(bits >> 32)))};
}

// Integers of two blocks of 16 bytes, whose low halves are a block's first 16, the high halves the others.
inline Bits nibbles(const std::byte* a, const std::byte* b) {
  const __m256i shift = _mm256_setr_epi64x(0, 0, 4, 4);
  return masked({_mm256_srlv_epi64(_mm256_broadcastsi128_si256(load_16(a)), shift),
                 _mm256_srlv_epi64(_mm256_broadcastsi128_si256(load_16(b)), shift)},
                0x0F);
}

// Products of bytes as sums of four; q is unsigned, below 128 unless it is wide. Defined for each instruction set.
template <bool kIsWide>
Bits dot(Bits q, Bits x);

// Dwords --------------------------------------------------------------------------------------------------------------

// Shifted right, as many for the second eight as for the first.
inline Bits shifted_each(Bits x, __m256i n) { return {_mm256_srlv_epi32(x.a, n), _mm256_srlv_epi32(x.b, n)}; }
inline Bits masked_dwords(Bits x, int mask) {
  const __m256i bits = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(x.a, bits), _mm256_and_si256(x.b, bits)};
}
inline Bits either(Bits a, Bits b) { return {_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b)}; }
inline Bits less(Bits x, int n) {
  const __m256i by = _mm256_set1_epi32(n);
  return {_mm256_sub_epi32(x.a, by), _mm256_sub_epi32(x.b, by)};
}

// Numbers -------------------------------------------------------------------------------------------------------------

inline Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats load_numbers(const float* from) { return {_mm256_load_ps(from), _mm256_load_ps(from + 8)}; }
// Eight numbers, each twice.
inline Floats load_each_twice(const float* from) {
  const __m256 x = _mm256_load_ps(from);
  return {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
          _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
}
inline Floats add(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Floats multiply(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Floats multiply(Floats x, float y) {
  return {_mm256_mul_ps(x.a, _mm256_set1_ps(y)), _mm256_mul_ps(x.b, _mm256_set1_ps(y))};
}
inline Floats multiply_add(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Floats negated(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign)};
}
inline float total(Floats x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

inline Floats numbers_of(Bits dwords) { return {_mm256_cvtepi32_ps(dwords.a), _mm256_cvtepi32_ps(dwords.b)}; }
inline Floats numbers_of_bytes(__m128i bytes) {
  return numbers_of({_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))});
}
inline Floats numbers_of_signed_bytes(__m128i bytes) {
  return numbers_of({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))});
}

// Numbers `first` and `second` of four, for eight lanes each.
template <int first, int second>
inline Floats two_of(__m128 four) {
  return {_mm256_broadcastss_ps(_mm_permute_ps(four, first)), _mm256_broadcastss_ps(_mm_permute_ps(four, second))};
}

// A float16 for each eight lanes.
inline Floats two_float16(std::int16_t first, std::int16_t second) {
  return {_mm256_cvtph_ps(_mm_set1_epi16(first)), _mm256_cvtph_ps(_mm_set1_epi16(second))};
}

// Half of 2 to the power of each dword less 127: below 2 that is a subnormal number.
inline __m256 half_powers(__m256i exponents) {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(exponents, one), 23);
  // From 2 on the normal one is the greater.
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), _mm256_min_epi32(exponents, one));
  return _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal));
}
inline Floats half_powers(Bits exponents) { return {half_powers(exponents.a), half_powers(exponents.b)}; }

// Scales and minima of a group: of 16 blocks. weight = scale * integer + minimum, with integers >= 0.
struct BlockScales {
  Floats scale;
  Floats minimum;
};

// Of the 16 halves of 8 blocks: integers of 16 bits, which products are multiplied by before they become numbers.
struct HalfScales {
  __m256i scale, minimum;
  __m256 factor, minimum_factor;
};

// Where in eight words the words 2 i and 2 i + 1 are, each for half of the lanes.
struct alignas(32) WordsOfBlock {
  std::uint8_t bytes[32];
};
constexpr WordsOfBlock words_of_block(int i) {
  WordsOfBlock at{};
  for (int j = 0; j < 32; ++j) at.bytes[j] = static_cast<std::uint8_t>(4 * i + j / 16 * 2 + j % 2);
  return at;
}
constexpr WordsOfBlock kWordsOfBlock[4] = {words_of_block(0), words_of_block(1), words_of_block(2), words_of_block(3)};

// The two words of one of 8 blocks.
inline __m256i scales_of_block(__m256i words, std::int64_t block) {
  const __m256i eight =
      block < 4 ? _mm256_permute4x64_epi64(words, 0b01'00'01'00) : _mm256_permute4x64_epi64(words, 0b11'10'11'10);
  return _mm256_shuffle_epi8(eight,
                             _mm256_load_si256(reinterpret_cast<const __m256i*>(kWordsOfBlock[block % 4].bytes)));
}

inline __m256 one_float16(std::int16_t x) { return _mm256_cvtph_ps(_mm_set1_epi16(x)); }

// scales: signed; minus `offset`, that many, is each one's minimum
inline HalfScales half_scales(__m128i scales, std::int16_t factor, float offset) {
  const __m256i scale = _mm256_cvtepi8_epi16(scales);
  const __m256 number = one_float16(factor);
  return {scale, scale, number, _mm256_mul_ps(number, _mm256_set1_ps(-offset))};
}
inline HalfScales half_scales(__m128i scales, std::int16_t factor, __m128i minima, std::int16_t minus_factor) {
  return {_mm256_cvtepi8_epi16(scales), _mm256_cvtepi8_epi16(minima), one_float16(factor),
          _mm256_xor_ps(one_float16(minus_factor), _mm256_set1_ps(-0.0F))};
}

// The integers' sum of a row's half block, with which minima are multiplied.
using HalfSum = std::int16_t;
inline HalfSum half_sum(float /*scale*/, std::int32_t sum) { return static_cast<HalfSum>(sum); }

// A group's scales times those of a row: what the products of each pair of blocks are multiplied by. In memory, from
// where a number goes to all lanes while it is loaded.
template <class Scales>
class RowScales;

template <>
class RowScales<BlockScales> {
 public:
  // Returns the products of the minima.
  Floats set(const BlockScales& group, const float* scales, const float* sums, const HalfSum* /*half_sums*/) {
    const Floats all = multiply(group.scale, load_numbers(scales));
    _mm256_store_ps(scales_, all.a);
    _mm256_store_ps(scales_ + 8, all.b);
    return multiply(group.minimum, load_numbers(sums));
  }
  template <bool kIsWide>
  Floats add_products(const BlockScales& /*group*/, std::int64_t pair, Bits q, Bits x, Floats sum) const {
    const Floats scale = {_mm256_broadcast_ss(scales_ + 2 * pair), _mm256_broadcast_ss(scales_ + 2 * pair + 1)};
    return multiply_add(numbers_of(dot<kIsWide>(q, x)), scale, sum);
  }

 private:
  alignas(32) float scales_[16];
};

template <>
class RowScales<HalfScales> {
 public:
  Floats set(const HalfScales& group, const float* scales, const float* /*sums*/, const HalfSum* half_sums) {
    const __m256 of_row = _mm256_load_ps(scales);
    _mm256_store_ps(scales_, _mm256_mul_ps(group.factor, of_row));
    const __m256i sums = _mm256_load_si256(reinterpret_cast<const __m256i*>(half_sums));
    const __m256 minima = _mm256_cvtepi32_ps(_mm256_madd_epi16(group.minimum, sums));
    return {_mm256_mul_ps(minima, _mm256_mul_ps(group.minimum_factor, of_row)), _mm256_setzero_ps()};
  }
  template <bool kIsWide>
  Floats add_products(const HalfScales& group, std::int64_t pair, Bits q, Bits x, Floats sum) const {
    static_assert(!kIsWide);
    const Floats scale = {_mm256_broadcast_ss(scales_ + 2 * pair), _mm256_broadcast_ss(scales_ + 2 * pair + 1)};
    const Bits products = {
        _mm256_madd_epi16(_mm256_maddubs_epi16(q.a, x.a), scales_of_block(group.scale, 2 * pair)),
        _mm256_madd_epi16(_mm256_maddubs_epi16(q.b, x.b), scales_of_block(group.scale, 2 * pair + 1))};
    return multiply_add(numbers_of(products), scale, sum);
  }

 private:
  alignas(32) float scales_[8];
};

// The first two words of 16 blocks; of n blocks, zero for the others.
template <int bytes>
class BlockHeads {
 public:
  BlockHeads(const std::byte* group, std::int64_t n) : group_(group), n_(n) {}

  Floats first_float16() const { return float16_at(0); }
  Floats second_float16() const { return float16_at(2); }
  // As dwords.
  Bits first_bytes() const {
    if (n_ < 16) {
      alignas(16) std::uint8_t some[16] = {};
      for (std::int64_t i = 0; i < n_; ++i) some[i] = static_cast<std::uint8_t>(group_[i * bytes]);
      return dwords(_mm_load_si128(reinterpret_cast<const __m128i*>(some)));
    }
    const auto at = [this](int i) { return static_cast<char>(group_[i * bytes]); };
    return dwords(_mm_setr_epi8(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9), at(10), at(11),
                                at(12), at(13), at(14), at(15)));
  }

 private:
  static Bits dwords(__m128i x) { return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x, x))}; }

  Floats float16_at(std::ptrdiff_t offset) const {
    const auto word = [&](std::int64_t i) {
      std::int16_t bits;
      std::memcpy(&bits, group_ + i * bytes + offset, sizeof(bits));
      return bits;
    };
    if (n_ < 16) {
      alignas(32) std::int16_t some[16] = {};
      for (std::int64_t i = 0; i < n_; ++i) some[i] = word(i);
      const auto* from = reinterpret_cast<const __m128i*>(some);
      return {_mm256_cvtph_ps(_mm_load_si128(from)), _mm256_cvtph_ps(_mm_load_si128(from + 1))};
    }
    const auto eight = [&](std::int64_t i) {
      return _mm256_cvtph_ps(_mm_setr_epi16(word(i), word(i + 1), word(i + 2), word(i + 3), word(i + 4), word(i + 5),
                                            word(i + 6), word(i + 7)));
    };
    return {eight(0), eight(8)};
  }

  const std::byte* group_;
  std::int64_t n_;
};

}  // namespace
}  // namespace winnow::kernels
