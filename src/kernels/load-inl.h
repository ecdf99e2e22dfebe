// Stored rows as vectors of float32.
#if defined(WINNOW_KERNELS_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_LOAD_INL_H_
#undef WINNOW_KERNELS_LOAD_INL_H_
#else
#define WINNOW_KERNELS_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/half.h"
#include "winnow/entry_type.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using VF = hn::Vec<F>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

// Numbers [i, i + kLanes) of a row of one of the types that are plain arrays. i is a multiple of kLanes.
struct F32Row {
  static HWY_INLINE VF load(const std::byte* row, int i) {
    return hn::LoadU(F(), reinterpret_cast<const float*>(row) + i);
  }
  static float load_one(const std::byte* row, int i) { return reinterpret_cast<const float*>(row)[i]; }
};

struct F16Row {
  static HWY_INLINE VF load(const std::byte* row, int i) {
    const hn::Rebind<hwy::float16_t, F> half;
    return hn::PromoteTo(F(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
  static float load_one(const std::byte* row, int i) {
    return float_from_half(reinterpret_cast<const std::uint16_t*>(row)[i]);
  }
};

struct BF16Row {
  static HWY_INLINE VF load(const std::byte* row, int i) {
    const hn::Rebind<std::uint16_t, F> u16;
    const hn::RebindToUnsigned<F> u32;
    const auto bits = hn::PromoteTo(u32, hn::LoadU(u16, reinterpret_cast<const std::uint16_t*>(row) + i));
    return hn::BitCast(F(), hn::ShiftLeft<16>(bits));
  }
  static float load_one(const std::byte* row, int i) {
    return std::bit_cast<float>(std::uint32_t{reinterpret_cast<const std::uint16_t*>(row)[i]} << 16);
  }
};

template <class Row>
HWY_INLINE void expand_plain(const std::byte* src, float* dst, int n) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(Row::load(src, i), F(), dst + i);
  for (; i < n; ++i) dst[i] = Row::load_one(src, i);
}

inline float block_scale(const std::byte* block) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, block, sizeof(bits));
  return float_from_half(bits);
}

HWY_INLINE void expand_q8_0(const std::byte* src, float* dst, int n) {
  const hn::Rebind<std::int8_t, F> i8;
  const hn::RebindToSigned<F> i32;
  for (int first = 0; first < n; first += 32, src += 34) {
    const VF scale = hn::Set(F(), block_scale(src));
    for (int i = 0; i < 32; i += kLanes) {
      const auto q = hn::LoadU(i8, reinterpret_cast<const std::int8_t*>(src + 2) + i);
      hn::StoreU(hn::Mul(scale, hn::ConvertTo(F(), hn::PromoteTo(i32, q))), F(), dst + first + i);
    }
  }
}

// Byte j of a block holds number j in its low and number j + 16 in its high four bits, both plus 8.
HWY_INLINE void expand_q4_0(const std::byte* src, float* dst, int n) {
  const hn::Rebind<std::uint8_t, F> u8;
  const hn::RebindToSigned<F> i32;
  const auto eight = hn::Set(i32, 8);
  for (int first = 0; first < n; first += 32, src += 18) {
    const VF scale = hn::Set(F(), block_scale(src));
    for (int i = 0; i < 16; i += kLanes) {
      const auto q = hn::PromoteTo(i32, hn::LoadU(u8, reinterpret_cast<const std::uint8_t*>(src + 2) + i));
      const auto low = hn::Sub(hn::And(q, hn::Set(i32, 15)), eight);
      const auto high = hn::Sub(hn::ShiftRight<4>(q), eight);
      hn::StoreU(hn::Mul(scale, hn::ConvertTo(F(), low)), F(), dst + first + i);
      hn::StoreU(hn::Mul(scale, hn::ConvertTo(F(), high)), F(), dst + first + 16 + i);
    }
  }
}

// One row of n numbers as float32.
HWY_INLINE void expand_row(EntryType type, const std::byte* src, float* dst, int n) {
  switch (type) {
    case EntryType::kF32:
      return expand_plain<F32Row>(src, dst, n);
    case EntryType::kF16:
      return expand_plain<F16Row>(src, dst, n);
    case EntryType::kBF16:
      return expand_plain<BF16Row>(src, dst, n);
    case EntryType::kQ8_0:
      return expand_q8_0(src, dst, n);
    case EntryType::kQ4_0:
      return expand_q4_0(src, dst, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
