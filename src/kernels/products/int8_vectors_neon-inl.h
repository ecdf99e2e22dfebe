// 128-bit vectors for int8_product-inl.h, for NEON with dot products of bytes.
#pragma once

namespace winnow::kernels {
namespace {

// Vectors with one dword for each of 4 weight rows.
struct VectorsNeon {
  using Int = int32x4_t;
  using Float = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 6;  // as for AVX-512, with 32 registers
  static constexpr int kHalvesTileRows = kTileRows;
  static constexpr int kStreamedRows = 4;
  static constexpr bool kDotSaturates = false;
  static constexpr bool kDotIsSigned = true;
  static constexpr bool kMultipliesMatrices = false;

  static Int set(std::int32_t x) { return vdupq_n_s32(x); }
  static Int load(const void* from) { return vld1q_s32(static_cast<const std::int32_t*>(from)); }
  static Int load_any(const void* from) { return bytes_as_int(vld1q_u8(static_cast<const std::uint8_t*>(from))); }
  // Load one word or byte for each lane.
  static Int load_words(const void* from) {
    return vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(static_cast<const std::uint8_t*>(from)))));
  }
  static Int load_bytes(const void* from) {
    std::uint32_t bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
  }
  static void store(void* to, Int x) { vst1q_s32(static_cast<std::int32_t*>(to), x); }
  static Int bit_and(Int a, Int b) { return vandq_s32(a, b); }
  static Int bit_or(Int a, Int b) { return vorrq_s32(a, b); }
  static Int bit_xor(Int a, Int b) { return veorq_s32(a, b); }
  // Shifts use the compiler's operators: the intrinsics need a constant, which n becomes only after inlining.
  static Int shift_left(Int x, int n) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(x) << n); }
  static Int shift_right(Int x, int n) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(x) >> n); }
  static Int shift_right_signed(Int x, int n) { return x >> n; }
  static Int add(Int a, Int b) { return vaddq_s32(a, b); }
  static Int subtract(Int a, Int b) { return vsubq_s32(a, b); }
  static Int max(Int a, Int b) { return vmaxq_s32(a, b); }
  static Int lookup(const std::uint8_t (&table)[16], Int indices) {
    return bytes_as_int(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(indices)));
  }
  static Int low_32(Int a, Int b) { return vzip1q_s32(a, b); }
  static Int high_32(Int a, Int b) { return vzip2q_s32(a, b); }
  static Int low_64(Int a, Int b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  static Int high_64(Int a, Int b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  // Loads 16 bytes of one row: every fourth row of four lanes is a single one.
  static Int every_fourth(const std::byte* row, std::size_t /*stride*/) { return load_any(row); }
  // Returns sum + the products of four bytes in every lane.
  static Int dot(Int sum, Int a, Int b) { return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)); }

  static Float set_float(float x) { return vdupq_n_f32(x); }
  static Float load_float(const float* from) { return vld1q_f32(from); }
  static void store_float(float* to, Float x) { vst1q_f32(to, x); }
  static Float to_float(Int x) { return vcvtq_f32_s32(x); }
  static Float as_float(Int x) { return vreinterpretq_f32_s32(x); }
  static Float multiply(Float a, Float b) { return vmulq_f32(a, b); }
  static Float multiply_add(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  // Converts the float16 in the low half of every lane.
  static Float halves(Int x) { return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(x)))); }

  // max_16 returns the largest absolute value of 16 numbers; quantise_16 stores them as integers and returns the sum of
  // these.
  static float max_16(const float* x) {
    const auto at = [&](int i) { return vabsq_f32(vld1q_f32(x + 4 * i)); };
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(at(0), at(1)), vmaxq_f32(at(2), at(3))));
  }
  static std::int32_t quantise_16(const float* x, float inverse, std::int8_t* q) {
    const auto at = [&](int i) { return vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse)); };
    const Int a = at(0), b = at(1), c = at(2), d = at(3);
    const int16x8_t low = vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), high = vcombine_s16(vqmovn_s32(c), vqmovn_s32(d));
    vst1q_s8(q, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(a, b), vaddq_s32(c, d)));
  }

 private:
  static Int bytes_as_int(uint8x16_t x) { return vreinterpretq_s32_u8(x); }
};

}  // namespace
}  // namespace winnow::kernels
