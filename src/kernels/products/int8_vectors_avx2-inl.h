// 256-bit vectors for int8_product-inl.h, without the product of bytes: int8_product_avx2.cc and
// int8_product_avx_vnni.cc each define one.
#pragma once

namespace winnow::kernels {
namespace {

// Vectors with one dword for each of 8 weight rows.
struct Vectors256 {
  using Int = __m256i;
  using Float = __m256;
  static constexpr int kLanes = 8;
  static constexpr bool kDotIsSigned = false;
  static constexpr bool kMultipliesMatrices = false;

  static Int set(std::int32_t x) { return _mm256_set1_epi32(x); }
  static Int load(const void* from) { return _mm256_load_si256(static_cast<const __m256i*>(from)); }
  static Int load_any(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  // Load one word or byte for each lane.
  static Int load_words(const void* from) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  static Int load_bytes(const void* from) { return _mm256_cvtepu8_epi32(_mm_loadu_si64(from)); }
  static void store(void* to, Int x) { _mm256_store_si256(static_cast<__m256i*>(to), x); }
  static Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int bit_or(Int a, Int b) { return _mm256_or_si256(a, b); }
  static Int bit_xor(Int a, Int b) { return _mm256_xor_si256(a, b); }
  static Int shift_left(Int x, int n) { return _mm256_slli_epi32(x, n); }
  static Int shift_right(Int x, int n) { return _mm256_srli_epi32(x, n); }
  static Int shift_right_signed(Int x, int n) { return _mm256_srai_epi32(x, n); }
  static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int subtract(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static Int max(Int a, Int b) { return _mm256_max_epi32(a, b); }
  static Int lookup(const std::uint8_t (&table)[16], Int indices) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                               indices);
  }
  static Int low_32(Int a, Int b) { return _mm256_unpacklo_epi32(a, b); }
  static Int high_32(Int a, Int b) { return _mm256_unpackhi_epi32(a, b); }
  static Int low_64(Int a, Int b) { return _mm256_unpacklo_epi64(a, b); }
  static Int high_64(Int a, Int b) { return _mm256_unpackhi_epi64(a, b); }
  // Loads 16 bytes of every fourth row.
  static Int every_fourth(const std::byte* row, std::size_t stride) {
    const auto at = [&](std::size_t i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i * stride)); };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(4), 1);
  }

  static Float set_float(float x) { return _mm256_set1_ps(x); }
  static Float load_float(const float* from) { return _mm256_loadu_ps(from); }
  static void store_float(float* to, Float x) { _mm256_storeu_ps(to, x); }
  static Float to_float(Int x) { return _mm256_cvtepi32_ps(x); }
  static Float as_float(Int x) { return _mm256_castsi256_ps(x); }
  static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float multiply_add(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  // Converts the float16 in the low half of every lane.
  static Float halves(Int x) {
    const Int words = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
    const Int packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0b1000);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }

  // max_16 returns the largest absolute value of 16 numbers; quantise_16 stores them as integers and returns the sum of
  // these.
  static float max_16(const float* x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    const __m256 most =
        _mm256_max_ps(_mm256_andnot_ps(sign, _mm256_loadu_ps(x)), _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8)));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  static std::int32_t quantise_16(const float* x, float inverse, std::int8_t* q) {
    const __m256 scale = _mm256_set1_ps(inverse);
    const Int a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale));
    const Int b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), scale));
    const Int words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0b11011000);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), bytes);
    const Int sums = _mm256_add_epi32(a, b);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01001110));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0b10110001)));
  }
};

}  // namespace
}  // namespace winnow::kernels
