// Conversion of rows of quantised weight matrices to bfloat16.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/products/weight_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cassert>
#include <cstring>

#include "kernels/products/weight_rows.h"
#include "kernels/simd/half.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A group of 16 weights: every format's scales are constant over one.
constexpr std::size_t kGroup = 16;
using Float = hn::CappedTag<float, kGroup>;
using Word = hn::Rebind<std::uint32_t, Float>;
using Half = hn::Rebind<std::uint16_t, Float>;
using Byte = hn::Rebind<std::uint8_t, Float>;
using SignedByte = hn::Rebind<std::int8_t, Float>;
using Int = hn::Rebind<std::int32_t, Float>;

HWY_INLINE float half_at(const std::byte* src) {
  std::uint16_t bits;
  std::memcpy(&bits, src, sizeof(bits));
  return float_from_half(bits);
}

// Rounds weights to nearest, ties to even, and stores them. They must be finite.
HWY_INLINE void store_bf16(hn::Vec<Float> x, std::uint16_t* dst) {
  const Word word;
  const auto bits = hn::BitCast(word, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(word, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(word, 0x7FFF)), odd));
  hn::StoreU(hn::TruncateTo(Half(), rounded), Half(), dst);
}

// Sets dst[i] to scale * q[i] + offset.
HWY_INLINE void store_group(const std::uint8_t* q, float scale, float offset, std::uint16_t* dst) {
  const Float d;
  const auto s = hn::Set(d, scale);
  const auto o = hn::Set(d, offset);
  for (std::size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    const auto x = hn::ConvertTo(d, hn::PromoteTo(Int(), hn::LoadU(Byte(), q + i)));
    store_bf16(hn::MulAdd(x, s, o), dst + i);
  }
}

HWY_INLINE void store_signed_group(const std::int8_t* q, float scale, std::uint16_t* dst) {
  const Float d;
  const auto s = hn::Set(d, scale);
  for (std::size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    const auto x = hn::ConvertTo(d, hn::PromoteTo(Int(), hn::LoadU(SignedByte(), q + i)));
    store_bf16(hn::Mul(x, s), dst + i);
  }
}

// Splits 16 bytes into their low and high halves. The compiler vectorises this loop.
HWY_INLINE void split_nibbles(const std::byte* src, std::uint8_t* low, std::uint8_t* high) {
  for (std::size_t i = 0; i < kGroup; ++i) {
    const auto byte = static_cast<std::uint8_t>(src[i]);
    low[i] = byte & 0x0F;
    high[i] = byte >> 4;
  }
}

// A block is a float16 scale, then 16 bytes with weight i in the low half of byte i and weight i + 16 in its high half,
// each with 8 added.
void convert_q4_0(const std::byte* src, std::uint16_t* dst, std::int64_t n_blocks) {
  std::uint8_t low[kGroup], high[kGroup];
  for (std::int64_t b = 0; b < n_blocks; ++b, src += 18, dst += 32) {
    const float scale = half_at(src);
    split_nibbles(src + 2, low, high);
    store_group(low, scale, -8 * scale, dst);
    store_group(high, scale, -8 * scale, dst + 16);
  }
}

// A block is a float16 scale, a float16 minimum, then 16 bytes as above.
void convert_q4_1(const std::byte* src, std::uint16_t* dst, std::int64_t n_blocks) {
  std::uint8_t low[kGroup], high[kGroup];
  for (std::int64_t b = 0; b < n_blocks; ++b, src += 20, dst += 32) {
    const float scale = half_at(src), minimum = half_at(src + 2);
    split_nibbles(src + 4, low, high);
    store_group(low, scale, minimum, dst);
    store_group(high, scale, minimum, dst + 16);
  }
}

// A block is a float16 scale, then 32 signed bytes.
void convert_q8_0(const std::byte* src, std::uint16_t* dst, std::int64_t n_blocks) {
  for (std::int64_t b = 0; b < n_blocks; ++b, src += 34, dst += 32) {
    const float scale = half_at(src);
    const auto* q = reinterpret_cast<const std::int8_t*>(src + 2);
    store_signed_group(q, scale, dst);
    store_signed_group(q + 16, scale, dst + 16);
  }
}

// A block is a float16 scale and a float16 minimum, 8 scales and 8 minima of 6 bits in 12 bytes, then 256 weights of 4
// bits: 32 bytes hold two groups of 32, the first in the low halves.
void convert_q4_k(const std::byte* src, std::uint16_t* dst, std::int64_t n_blocks) {
  std::uint8_t low[kGroup], high[kGroup];
  for (std::int64_t b = 0; b < n_blocks; ++b, src += 144) {
    const float d = half_at(src), d_min = half_at(src + 2);
    const auto* packed = reinterpret_cast<const std::uint8_t*>(src + 4);
    const auto scale_of = [&](int j) {
      return j < 4 ? packed[j] & 63 : (packed[j + 4] & 0x0F) | ((packed[j - 4] >> 6) << 4);
    };
    const auto minimum_of = [&](int j) {
      return j < 4 ? packed[j + 4] & 63 : (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
    };
    const std::byte* q = src + 16;
    for (int j = 0; j < 8; j += 2, q += 32, dst += 64) {
      const float first = d * static_cast<float>(scale_of(j)), first_min = -d_min * static_cast<float>(minimum_of(j));
      const float second = d * static_cast<float>(scale_of(j + 1));
      const float second_min = -d_min * static_cast<float>(minimum_of(j + 1));
      for (int part = 0; part < 32; part += 16) {
        split_nibbles(q + part, low, high);
        store_group(low, first, first_min, dst + part);
        store_group(high, second, second_min, dst + 32 + part);
      }
    }
  }
}

// A block of 256 weights, each with 32 added, is 128 bytes with their low 4 bits, 64 bytes with their high 2 bits, 16
// signed scales and a float16 scale.
void convert_q6_k(const std::byte* src, std::uint16_t* dst, std::int64_t n_blocks) {
  std::uint8_t q[4][kGroup];
  for (std::int64_t b = 0; b < n_blocks; ++b, src += 210) {
    const auto* low = reinterpret_cast<const std::uint8_t*>(src);
    const auto* high = low + 128;
    const auto* scales = reinterpret_cast<const std::int8_t*>(src + 192);
    const float d = half_at(src + 208);
    for (int half = 0; half < 2; ++half, low += 64, high += 32, scales += 8, dst += 128) {
      for (std::size_t part = 0; part < 2; ++part) {
        for (std::size_t i = 0; i < kGroup; ++i) {
          const unsigned l0 = low[16 * part + i], l1 = low[32 + 16 * part + i], h = high[16 * part + i];
          q[0][i] = static_cast<std::uint8_t>((l0 & 15) | (h & 3) << 4);
          q[1][i] = static_cast<std::uint8_t>((l1 & 15) | (h >> 2 & 3) << 4);
          q[2][i] = static_cast<std::uint8_t>(l0 >> 4 | (h >> 4 & 3) << 4);
          q[3][i] = static_cast<std::uint8_t>(l1 >> 4 | (h >> 6 & 3) << 4);
        }
        for (std::size_t i = 0; i < 4; ++i) {
          const float scale = d * static_cast<float>(scales[part + 2 * i]);
          store_group(q[i], scale, -32 * scale, dst + 32 * i + 16 * part);
        }
      }
    }
  }
}

void weight_row_to_bf16(WeightBlocks blocks, const std::byte* src, std::uint16_t* dst, std::int64_t n) {
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return convert_q4_0(src, dst, n / 32);
    case WeightBlocks::kQ4_1:
      return convert_q4_1(src, dst, n / 32);
    case WeightBlocks::kQ8_0:
      return convert_q8_0(src, dst, n / 32);
    case WeightBlocks::kQ4_K:
      return convert_q4_k(src, dst, n / 256);
    case WeightBlocks::kQ6_K:
      return convert_q6_k(src, dst, n / 256);
    default:
      break;  // excluded by converts_to_bf16
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(weight_row_to_bf16);

bool converts_to_bf16(WeightBlocks blocks) {
  switch (blocks) {
    case WeightBlocks::kQ4_0:
    case WeightBlocks::kQ4_1:
    case WeightBlocks::kQ8_0:
    case WeightBlocks::kQ4_K:
    case WeightBlocks::kQ6_K:
      return true;
    default:
      return false;
  }
}

void weight_row_to_bf16(WeightBlocks blocks, const std::byte* src, std::uint16_t* dst, std::int64_t n) {
  assert(converts_to_bf16(blocks) && n % weight_blocks_info(blocks).n_weights == 0);
  HWY_DYNAMIC_DISPATCH(weight_row_to_bf16)(blocks, src, dst, n);
}

}  // namespace winnow::kernels
#endif
