// The codebook levels of r4 and r3 as integers of 16 bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/entries/rotated_codes.h"

namespace winnow::kernels {

// The largest level as an integer. 32 such levels times words of 15 bits fit into 32 bits with at most 2,047: levels of
// r4 then have an error of 0.0004 of a coordinate's standard deviation (root mean square), while its codes have an
// error of 0.098.
inline constexpr float kMaxWordLevel = 2047.0F;

// The integer level of every code, as tables of bytes.
struct WordLevels {
  // Rounds the level of every code, in the order of the codes as stored.
  constexpr explicit WordLevels(const float (&levels)[16]) : scale(kMaxWordLevel / *std::ranges::max_element(levels)) {
    for (int i = 0; i < 16; ++i) {
      const float level = levels[i] * scale;
      const auto bits = static_cast<std::uint16_t>(static_cast<std::int16_t>(level + (level < 0 ? -0.5F : 0.5F)));
      low[i] = static_cast<std::uint8_t>(bits & 0xFFU);
      high[i] = static_cast<std::uint8_t>(bits >> 8U);
      if (i < 8) words[2 * i] = low[i], words[2 * i + 1] = high[i];
    }
  }

  alignas(16) std::uint8_t low[16] = {}, high[16] = {};  // bytes of every code's level
  alignas(16) std::uint8_t words[16] = {};               // both bytes, for the first eight codes
  float scale;                                           // an integer over a level
};

inline constexpr WordLevels kWordLevels4(kLevels4), kWordLevels3(kLevels3);

}  // namespace winnow::kernels
