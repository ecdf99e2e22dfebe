// Vectors of 512 bits for int8_product-inl.h.
#pragma once

namespace winnow::kernels {
namespace {

// Vectors with one dword for each of 16 weight rows.
struct Vectors512 {
  using Int = __m512i;
  using Float = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 6;        // rows that are multiplied at once with two panels: as many as fit in the
                                             // registers
  static constexpr int kHalvesTileRows = 5;  // rows with scales of half blocks, which take one more register per sum
  static constexpr int kStreamedRows = 4;    // rows that are multiplied at once with one unpacked vector
  static constexpr bool kDotSaturates = false;
  static constexpr bool kDotIsSigned = false;
  static constexpr bool kMultipliesMatrices = false;

  static Int set(std::int32_t x) { return _mm512_set1_epi32(x); }
  static Int load(const void* from) { return _mm512_load_si512(from); }
  static Int load_any(const void* from) { return _mm512_loadu_si512(from); }
  // Load one word or byte for each lane.
  static Int load_words(const void* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(from)));
  }
  static Int load_bytes(const void* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(from)));
  }
  static void store(void* to, Int x) { _mm512_store_si512(to, x); }
  static Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int bit_or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static Int bit_xor(Int a, Int b) { return _mm512_xor_si512(a, b); }
  static Int shift_left(Int x, int n) { return _mm512_slli_epi32(x, static_cast<unsigned>(n)); }
  static Int shift_right(Int x, int n) { return _mm512_srli_epi32(x, static_cast<unsigned>(n)); }
  static Int shift_right_signed(Int x, int n) { return _mm512_srai_epi32(x, static_cast<unsigned>(n)); }
  static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int subtract(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int max(Int a, Int b) { return _mm512_max_epi32(a, b); }
  static Int lookup(const std::uint8_t (&table)[16], Int indices) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                               indices);
  }
  static Int low_32(Int a, Int b) { return _mm512_unpacklo_epi32(a, b); }
  static Int high_32(Int a, Int b) { return _mm512_unpackhi_epi32(a, b); }
  static Int low_64(Int a, Int b) { return _mm512_unpacklo_epi64(a, b); }
  static Int high_64(Int a, Int b) { return _mm512_unpackhi_epi64(a, b); }
  // Loads 16 bytes of every fourth row.
  static Int every_fourth(const std::byte* row, std::size_t stride) {
    const auto at = [&](std::size_t i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i * stride)); };
    __m512i x = _mm512_broadcast_i32x4(at(0));
    x = _mm512_mask_broadcast_i32x4(x, 0x00F0, at(4));
    x = _mm512_mask_broadcast_i32x4(x, 0x0F00, at(8));
    return _mm512_mask_broadcast_i32x4(x, 0xF000, at(12));
  }
  // Returns sum + the products of four bytes in every lane, u unsigned.
  static Int dot(Int sum, Int u, Int s) { return _mm512_dpbusd_epi32(sum, u, s); }

  static Float set_float(float x) { return _mm512_set1_ps(x); }
  static Float load_float(const float* from) { return _mm512_loadu_ps(from); }
  static void store_float(float* to, Float x) { _mm512_storeu_ps(to, x); }
  static Float to_float(Int x) { return _mm512_cvtepi32_ps(x); }
  static Float as_float(Int x) { return _mm512_castsi512_ps(x); }
  static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float multiply_add(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  // Converts the float16 in the low half of every lane.
  static Float halves(Int x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }

  // max_16 returns the largest absolute value of 16 numbers; quantise_16 stores them as integers and returns the sum of
  // these.
  static float max_16(const float* x) { return _mm512_reduce_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x))); }
  static std::int32_t quantise_16(const float* x, float inverse, std::int8_t* q) {
    const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtsepi32_epi8(integers));
    return _mm512_reduce_add_epi32(integers);
  }
};

}  // namespace
}  // namespace winnow::kernels
