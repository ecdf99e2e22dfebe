// The levels of r4 as integers of 16 bits.
#pragma once

#include <cstdint>

#include "kernels/rotated_codes.h"

namespace winnow::kernels {

// The largest that 32 of them, times words of 15 bits, can have in 32 bits is 2,047: off by 0.0004 of a coordinate's
// standard deviation, root mean square, where the codes themselves are off by 0.098.
inline constexpr float kWordLevelScale = 2047.0F / kCodeLevels[7];

struct WordLevels {
  alignas(16) std::uint8_t low[16], high[16];  // bytes of every code's level
};

inline constexpr WordLevels kWordLevels = [] {
  WordLevels levels{};
  for (int i = 0; i < 16; ++i) {
    const float level = kCodeLevels[i] * kWordLevelScale;
    const auto bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(level + (level < 0 ? -0.5F : 0.5F)));
    levels.low[i] = static_cast<std::uint8_t>(bits & 0xFFU);
    levels.high[i] = static_cast<std::uint8_t>(bits >> 8U);
  }
  return levels;
}();

}  // namespace winnow::kernels
