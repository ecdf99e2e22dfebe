// Dequantises stored rows into vectors of float32.
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

#include "kernels/entries/rotated_codes.h"
#include "kernels/simd/half.h"
#include "winnow/entry_type.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using VF = hn::Vec<F>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));

// These types load numbers [i, i + kLanes) of a row. i is a multiple of kLanes; for block-quantised types it is
// cheapest if the compiler knows i % 32.
struct F32Row {
  static constexpr int kUnit = kLanes;  // numbers that are best loaded together
  static HWY_INLINE VF load(const std::byte* row, int i) {
    return hn::LoadU(F(), reinterpret_cast<const float*>(row) + i);
  }
  static float load_one(const std::byte* row, int i) { return reinterpret_cast<const float*>(row)[i]; }
};

struct F16Row {
  static constexpr int kUnit = kLanes;
  static HWY_INLINE VF load(const std::byte* row, int i) {
    const hn::Rebind<hwy::float16_t, F> half;
    return hn::PromoteTo(F(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(row) + i));
  }
  static float load_one(const std::byte* row, int i) {
    return float_from_half(reinterpret_cast<const std::uint16_t*>(row)[i]);
  }
};

struct BF16Row {
  static constexpr int kUnit = kLanes;
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

HWY_INLINE float block_scale(const std::byte* block) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, block, sizeof(bits));
  return float_from_half(bits);
}

// Block-quantised types: `raw` loads a row's numbers before they are multiplied by the scale of their block, a float16
// at the block's begin. They are numbers [unit + offset, unit + offset + kLanes), unit a multiple of kUnit and offset
// less than kUnit: cheap if the compiler knows the offset.
struct Q8Row {
  static constexpr int kUnit = 32;
  static constexpr int kScaleBlock = 32;  // numbers that share a scale
  static constexpr int kBlockBytes = 34;
  static HWY_INLINE VF raw(const std::byte* row, int unit, int offset) {
    const std::byte* block = row + static_cast<std::ptrdiff_t>(unit / kScaleBlock) * kBlockBytes;
    const hn::Rebind<std::int8_t, F> i8;
    const hn::RebindToSigned<F> i32;
    const auto q = hn::LoadU(i8, reinterpret_cast<const std::int8_t*>(block + 2) + offset);
    return hn::ConvertTo(F(), hn::PromoteTo(i32, q));
  }
};

using Codes = hn::Vec<hn::RebindToSigned<F>>;

// Loads codes [i, i + kLanes) of 32 codes of 4 bits: byte j of 16 holds number j in its low and number j + 16 in its
// high half.
HWY_INLINE Codes load_nibbles(const std::byte* bytes, int i) {
  const hn::Rebind<std::uint8_t, F> u8;
  const hn::RebindToSigned<F> i32;
  const auto both = hn::PromoteTo(i32, hn::LoadU(u8, reinterpret_cast<const std::uint8_t*>(bytes) + i % 16));
  return i < 16 ? hn::And(both, hn::Set(i32, 15)) : hn::ShiftRight<4>(both);
}

struct Q4Row {
  static constexpr int kUnit = 32;
  static constexpr int kScaleBlock = 32;
  static constexpr int kBlockBytes = 18;
  static HWY_INLINE VF raw(const std::byte* row, int unit, int offset) {
    const F d;
    const std::byte* block = row + static_cast<std::ptrdiff_t>(unit / kScaleBlock) * kBlockBytes;
    const Codes codes = load_nibbles(block + 2, offset);
    if constexpr (kLanes == 16) {
      alignas(64) static constexpr float kNumbers[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
      return hn::TableLookupLanes(hn::Load(d, kNumbers), hn::IndicesFromVec(d, codes));
    } else {
      return hn::ConvertTo(d, hn::Sub(codes, hn::Set(hn::RebindToSigned<F>(), 8)));
    }
  }
};

// Loads r4 numbers as stored, i.e. rotated, in blocks of kBlock numbers, 32 or more.
template <int kBlock>
struct R4Row {
  static constexpr int kUnit = 32;
  static constexpr int kScaleBlock = kBlock;
  static constexpr int kBlockBytes = 2 + kBlock / 2;
  static HWY_INLINE VF raw(const std::byte* row, int unit, int offset) {
    const F d;
    const hn::RebindToSigned<F> i32;
    const std::byte* block = row + static_cast<std::ptrdiff_t>(unit / kScaleBlock) * kBlockBytes;
    const Codes code = load_nibbles(block + 2 + unit % kBlock / kCodeGroup * (kCodeGroup / 2), offset);
    if constexpr (kLanes == 16) {
      return hn::TableLookupLanes(hn::Load(d, kLevels4), hn::IndicesFromVec(d, code));
    } else if constexpr (kLanes == 8) {
      const auto magnitude =
          hn::TableLookupLanes(hn::Load(d, kLevels4), hn::IndicesFromVec(d, hn::And(code, hn::Set(i32, 7))));
      const auto sign = hn::ShiftLeft<28>(hn::And(code, hn::Set(i32, 8)));
      return hn::Xor(magnitude, hn::BitCast(d, sign));
    } else {
      return hn::GatherIndex(d, kLevels4, code);
    }
  }
};

// Loads codes [8 i, 8 i + 8) of 32 codes of 3 bits (rotated_codes.h) into a byte each.
HWY_INLINE std::uint64_t load_eight_codes(const std::byte* group, int i) {
  std::uint32_t bits[3];
  __builtin_memcpy(bits, group, sizeof(bits));
  const std::uint32_t eight = i < 3 ? bits[i] : bits[0] >> 24 | (bits[1] >> 16 & 0xFF00U) | (bits[2] >> 8 & 0xFF0000U);
  std::uint64_t spread = (eight & 0xFFFU) | std::uint64_t{eight >> 12 & 0xFFFU} << 32;
  spread = (spread | spread << 10) & 0x003F003F003F003FU;
  return (spread | spread << 5) & 0x0707070707070707U;
}

#if HWY_TARGET != HWY_SCALAR
using Bytes16 = hn::Full128<std::uint8_t>;

// Loads codes [16 i, 16 i + 16) into a byte each. Two codes are six bits within two bytes, which a multiplication moves
// to one place: a turn over 4,096 entries is 7 % faster than with two loads of eight codes (Zen 5).
HWY_INLINE hn::Vec<Bytes16> load_sixteen_codes(const std::byte* group, int i) {
  alignas(16) static constexpr std::uint8_t kPairs[2][16] = {{0, 1, 0, 1, 1, 2, 2, 2, 4, 5, 4, 5, 5, 6, 6, 6},
                                                             {8, 9, 8, 9, 9, 10, 10, 10, 3, 7, 3, 7, 7, 11, 11, 11}};
  alignas(16) static constexpr std::uint16_t kToBit6[8] = {64, 1, 4, 16, 64, 1, 4, 16};
  const hn::Full128<std::uint64_t> u64;
  const hn::Full128<std::uint16_t> u16;
  std::uint64_t first;
  std::uint32_t last;
  __builtin_memcpy(&first, group, sizeof(first));
  __builtin_memcpy(&last, group + sizeof(first), sizeof(last));
  const auto all = hn::InterleaveLower(u64, hn::Set(u64, first), hn::Set(u64, last));
  const auto pairs = hn::TableLookupBytes(hn::BitCast(Bytes16(), all), hn::Load(Bytes16(), kPairs[i]));
  const auto moved = hn::Mul(hn::BitCast(u16, pairs), hn::Load(u16, kToBit6));
  return hn::BitCast(Bytes16(), hn::Or(hn::And(hn::ShiftRight<6>(moved), hn::Set(u16, 7)),
                                       hn::And(hn::ShiftRight<1>(moved), hn::Set(u16, 7 << 8))));
}
#endif

// Loads the codes from `first` on into the lanes of a vector.
template <class I32>
HWY_INLINE Codes load_codes(const std::byte* group, int first) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(I32()) == 16) return hn::PromoteTo(I32(), load_sixteen_codes(group, first / 16));
#endif
  const std::uint64_t codes = load_eight_codes(group, first / 8) >> first % 8 * 8;
  const hn::Rebind<std::uint8_t, I32> u8;
  return hn::PromoteTo(I32(), hn::LoadU(u8, reinterpret_cast<const std::uint8_t*>(&codes)));
}

// Loads r3 numbers as stored, i.e. rotated, in blocks of kBlock numbers, 32 or more.
template <int kBlock>
struct R3Row {
  static constexpr int kUnit = 32;
  static constexpr int kScaleBlock = kBlock;
  static constexpr int kBlockBytes = 2 + kBlock * 3 / 8;
  static HWY_INLINE VF raw(const std::byte* row, int unit, int offset) {
    const F d;
    const std::byte* block = row + static_cast<std::ptrdiff_t>(unit / kScaleBlock) * kBlockBytes;
    const std::byte* group = block + 2 + unit % kBlock / kCodeGroup * (kCodeGroup * 3 / 8);
    const auto code = load_codes<hn::RebindToSigned<F>>(group, offset);
    if constexpr (kLanes >= 8) {
      return hn::TableLookupLanes(hn::Load(d, kLevels3), hn::IndicesFromVec(d, code));
    } else {
      return hn::GatherIndex(d, kLevels3, code);
    }
  }
};

// Calls f with the R4Row or R3Row of rows of n numbers. Returns false if their blocks have fewer than 32 numbers.
template <template <int> class CodedRow, class Function>
HWY_INLINE bool with_coded_row(int n, const Function& f) {
  switch (code_block(n)) {
    case 32:
      f(CodedRow<32>());
      return true;
    case 64:
      f(CodedRow<64>());
      return true;
    case 128:
      f(CodedRow<128>());
      return true;
  }
  return false;
}

template <class Row>
HWY_INLINE void expand_blocks(const std::byte* src, float* dst, int n) {
  for (int first = 0; first < n; first += 32) {
    const VF scale = hn::Set(F(), block_scale(src + first / Row::kScaleBlock * Row::kBlockBytes));
#pragma GCC unroll 4
    for (int i = 0; i < 32; i += kLanes) {
      hn::StoreU(hn::Mul(scale, Row::raw(src, first, i)), F(), dst + first + i);
    }
  }
}

template <template <int> class CodedRow>
HWY_INLINE void expand_coded_row(EntryType type, const std::byte* src, float* dst, int n) {
  if (with_coded_row<CodedRow>(n, [&](auto row) HWY_ATTR { expand_blocks<decltype(row)>(src, dst, n); })) {
    return rotate_row(dst, dst, n);
  }
  load_coded_row(type, src, dst, n);
}

// Dequantises one row of n numbers to float32.
HWY_INLINE void expand_row(EntryType type, const std::byte* src, float* dst, int n) {
  switch (type) {
    case EntryType::kF32:
      return expand_plain<F32Row>(src, dst, n);
    case EntryType::kF16:
      return expand_plain<F16Row>(src, dst, n);
    case EntryType::kBF16:
      return expand_plain<BF16Row>(src, dst, n);
    case EntryType::kQ8_0:
      return expand_blocks<Q8Row>(src, dst, n);
    case EntryType::kQ4_0:
      return expand_blocks<Q4Row>(src, dst, n);
    case EntryType::kR4:
      return expand_coded_row<R4Row>(type, src, dst, n);
    case EntryType::kR3:
      return expand_coded_row<R3Row>(type, src, dst, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
