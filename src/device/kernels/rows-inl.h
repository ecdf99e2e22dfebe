// Kernels' access to pages and to rows of 16-bit numbers in them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kPageSlots = 32;  // kPageEntries, whose header device code cannot include

// Loads a head's table without the origin of its keys.
WINNOW_DEVICE HeadTable load_head(const HeadTable* heads, int i) {
  static_assert(offsetof(HeadTable, origin) == sizeof(simt::Words4));
  const simt::Words4 words = simt::load_16(heads + i);
  return {simt::pointer_of<const PageRows>(words.x[0], words.x[1]), static_cast<std::int32_t>(words.x[2]),
          static_cast<std::int32_t>(words.x[3]), nullptr};
}

WINNOW_DEVICE PageRows load_page(const PageRows* pages, int i) {
  static_assert(sizeof(PageRows) == sizeof(simt::Words4));
  const simt::Words4 words = simt::load_16(pages + i);
  return {simt::pointer_of<std::byte>(words.x[0], words.x[1]), simt::pointer_of<std::byte>(words.x[2], words.x[3])};
}

// Clamps a number to float16's range, since an infinity in the cache would turn every later output into NaN. NaN stays
// NaN.
WINNOW_DEVICE float in_f16_range(float x) {
  constexpr float kLargest = 65504.0F;
  return x > kLargest ? kLargest : x < -kLargest ? -kLargest : x;
}

WINNOW_DEVICE std::uint32_t pack_row_numbers(bool is_bf16, float low, float high) {
  return is_bf16 ? simt::pack_bf16(low, high) : simt::pack_f16(in_f16_range(low), in_f16_range(high));
}

}  // namespace winnow::device
