// Converts single numbers between float16 and float32, on any machine.
#pragma once

#include <bit>
#include <cstdint>

namespace winnow::kernels {

inline float float_from_half(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t magnitude = h & 0x7FFFU;
  if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  // Exponent and mantissa at float32's place are the number times 2^-112, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p+112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

// Returns the nearest float16, ties to even. Numbers beyond its range become its largest, since an infinity in the
// cache would turn every later output into NaN. NaN stays NaN.
inline std::uint16_t half_from_float(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7BFFU);
  if (magnitude < 0x38800000U) {
    // Below the smallest normal number: adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000U) >> 13);
}

}  // namespace winnow::kernels
