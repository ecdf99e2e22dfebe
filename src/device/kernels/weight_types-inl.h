// The types of stored weights that vector_products-inl.h multiplies: where the blocks of each lie in a unit of 1,024
// numbers, what a lane reads of it, and how it multiplies that by a row of x in 8 bits or in float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace products {

inline constexpr int kUnit = 1024;

// The sizes of a type's blocks.
struct Layout {
  int block_numbers;
  int block_bytes;
};

constexpr Layout layout_of(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, 4};
    case WeightType::kF16:
    case WeightType::kBF16:
      return {1, 2};
    case WeightType::kQ4_0:
      return {32, 18};
    case WeightType::kQ4_1:
      return {32, 20};
    case WeightType::kQ8_0:
      return {32, 34};
    case WeightType::kQ4_K:
      return {256, 144};
    case WeightType::kQ5_K:
      return {256, 176};
    case WeightType::kQ6_K:
      return {256, 210};
  }
  return {};
}

// The layout of a weight type, given as a kernel's template argument.
template <class Type>
inline constexpr int kBlockNumbers = layout_of(Type::kType).block_numbers;
template <class Type>
inline constexpr int kBlockBytes = layout_of(Type::kType).block_bytes;
template <class Type>
inline constexpr int kUnitBytesOf = kUnit / kBlockNumbers<Type>* kBlockBytes<Type>;

using simt::SharedAddress;

WINNOW_DEVICE float load_f16(SharedAddress from) {
  return simt::low_f16(std::uint32_t{simt::load_shared<std::uint16_t>(from)});
}

WINNOW_DEVICE std::uint32_t low_bits(SharedAddress address) {
#ifdef __CUDACC__
  return address;
#else
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address));
#endif
}

// Loads four words from an address that is a multiple of 2. It also reads the words around them.
WINNOW_DEVICE void load_words_of_halves(SharedAddress from, std::uint32_t (&to)[4]) {
  struct alignas(8) Pair {
    std::uint32_t x[2];
  };
  const std::uint32_t offset = low_bits(from) & 7U;
  const SharedAddress pairs = from - offset;
  const Pair a = simt::load_shared<Pair>(pairs), b = simt::load_shared<Pair>(pairs + 8),
             c = simt::load_shared<Pair>(pairs + 16);
  const bool skips = offset >= 4;
  const std::uint32_t words[5] = {skips ? a.x[1] : a.x[0], skips ? b.x[0] : a.x[1], skips ? b.x[1] : b.x[0],
                                  skips ? c.x[0] : b.x[1], skips ? c.x[1] : c.x[0]};
  const unsigned selector = (offset & 2U) != 0 ? 0x5432U : 0x3210U;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = simt::permute_bytes(words[i], words[i + 1], selector);
}

template <int n>
WINNOW_DEVICE void load_aligned_or_halves(SharedAddress from, std::uint32_t (&to)[n]) {
  const std::uint32_t offset = low_bits(from) & 3U;
  const SharedAddress words = from - offset;
  const unsigned selector = offset != 0 ? 0x5432U : 0x3210U;
  std::uint32_t word = simt::load_shared<std::uint32_t>(words);
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) {
    const auto next = simt::load_shared<std::uint32_t>(words + 4 * (i + 1));
    to[i] = simt::permute_bytes(word, next, selector);
    word = next;
  }
}

// Sums of byte products are added to the bits of a float so large that its last bit counts 1, which converts them to
// float.
inline constexpr std::int32_t kWholeBits = 0x4B400000;
inline constexpr float kWhole = 12582912.0F;

template <int n>
WINNOW_DEVICE float dot(const std::uint32_t* a, const std::uint32_t* b) {
  std::int32_t sum = kWholeBits;
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) sum = simt::dot_bytes(a[i], b[i], sum);
  return simt::float_of(static_cast<std::uint32_t>(sum)) - kWhole;
}

// Returns the same sum for unsigned bytes of a.
template <int n>
WINNOW_DEVICE float dot_unsigned(const std::uint32_t* a, const std::uint32_t* b) {
  std::int32_t sum = kWholeBits;
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) sum = simt::dot_unsigned_bytes(a[i], b[i], sum);
  return simt::float_of(static_cast<std::uint32_t>(sum)) - kWhole;
}

// Returns bytes of 0 to 127 minus those of `less`, as signed bytes.
WINNOW_DEVICE std::uint32_t subtract_bytes(std::uint32_t bytes, std::uint32_t less) {
  return ((bytes | 0x80808080U) - less) ^ 0x80808080U;
}

// A lane's part of a unit of x in 8 bits: two runs of 16 numbers, the scales of their blocks, and the scaled sum of the
// block, by which a type's minima are multiplied.
struct EightBits {
  std::uint32_t words[8];
  float scales[2];
  float sum;
};

struct alignas(8) ScaleAndSum {
  float scale;
  float sum;
};

WINNOW_DEVICE void load_run(const std::int8_t* from, std::uint32_t* to) {
  const simt::Words4 words = simt::load_16(from);
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = words.x[i];
}

// The place of a lane's part of a unit: offsets in bytes of weights from the unit's first, and in numbers of the unit's
// x and of its scales and sums. Offsets that a type does not need are 0.
struct Lane {
  std::uint32_t block;
  std::uint32_t run;
  std::uint32_t high;     // the high bits of a run's numbers
  std::uint32_t factors;  // of a run, if they are not in the block's first bytes
  std::uint32_t numbers;
  std::uint32_t scales;
};

// Keeps the offsets in registers: compilers would otherwise recompute them for every unit.
WINNOW_DEVICE Lane kept(const Lane& lane) {
  return {simt::kept(lane.block),   simt::kept(lane.run),     simt::kept(lane.high),
          simt::kept(lane.factors), simt::kept(lane.numbers), simt::kept(lane.scales)};
}

// Types whose blocks have 32 numbers: a lane has one block.
template <std::uint32_t kBytes>
struct SmallBlocks {
  static constexpr int kLaneNumbers = 32;

  WINNOW_DEVICE static Lane lane_of(std::uint32_t lane) {
    return {.block = kBytes * lane, .run = 0, .high = 0, .factors = 0, .numbers = 32 * lane, .scales = 2 * lane};
  }

  WINNOW_DEVICE static EightBits load(const std::int8_t* numbers, const float* scales, const Lane& lane) {
    EightBits x;
    load_run(numbers + lane.numbers, x.words);
    load_run(numbers + lane.numbers + 16, x.words + 4);
    const ScaleAndSum both = *reinterpret_cast<const ScaleAndSum*>(scales + lane.scales);
    x.scales[0] = both.scale;
    x.scales[1] = both.scale;
    x.sum = both.sum;
    return x;
  }
};

// Types whose blocks have 256 numbers, shared by eight lanes with two separate runs each.
struct LargeBlocks {
  static constexpr int kLaneNumbers = 256;  // numbers of eight lanes
};

// Weights of a lane: two runs of bytes, the second unsigned for some types, and a factor for each.
template <bool kIsSecondUnsigned>
struct TwoRuns {
  std::uint32_t words[8];
  float factors[2];
  float minimum;  // multiplied by the sum of x and added

  WINNOW_DEVICE float add_product(const EightBits& x, float sum) const {
    sum = simt::fma(simt::multiply(factors[0], x.scales[0]), dot<4>(words, x.words), sum);
    const float second = kIsSecondUnsigned ? dot_unsigned<4>(words + 4, x.words + 4) : dot<4>(words + 4, x.words + 4);
    sum = simt::fma(simt::multiply(factors[1], x.scales[1]), second, sum);
    return simt::fma(minimum, x.sum, sum);
  }
};

// Weights of a lane with one factor, and without a minimum if the type has none.
template <bool kHasMinimum>
struct OneRun {
  std::uint32_t words[8];
  float factor;
  float minimum;

  WINNOW_DEVICE float add_product(const EightBits& x, float sum) const {
    sum = simt::fma(simt::multiply(factor, x.scales[0]), dot<8>(words, x.words), sum);
    if constexpr (kHasMinimum) sum = simt::fma(minimum, x.sum, sum);
    return sum;
  }
};

struct Q4_0 : SmallBlocks<18> {
  static constexpr WeightType kType = WeightType::kQ4_0;
  using Weights = OneRun<true>;

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    const SharedAddress block = unit + lane.block;
    Weights w;
    std::uint32_t nibbles[4];
    load_aligned_or_halves(block + 2, nibbles);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      w.words[i] = nibbles[i] & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles[i] >> 4U & 0x0F0F0F0FU;
    }
    w.factor = load_f16(block);
    w.minimum = -8.0F * w.factor;
    return w;
  }
};

struct Q4_1 : SmallBlocks<20> {
  static constexpr WeightType kType = WeightType::kQ4_1;
  using Weights = OneRun<true>;

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    const SharedAddress block = unit + lane.block;
    Weights w;
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto nibbles = simt::load_shared<std::uint32_t>(block + 4 * (1 + i));
      w.words[i] = nibbles & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles >> 4U & 0x0F0F0F0FU;
    }
    const auto both = simt::load_shared<std::uint32_t>(block);
    w.factor = simt::low_f16(both);
    w.minimum = simt::high_f16(both);
    return w;
  }
};

struct Q8_0 : SmallBlocks<34> {
  static constexpr WeightType kType = WeightType::kQ8_0;
  using Weights = OneRun<false>;

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    const SharedAddress block = unit + lane.block;
    Weights w;
    load_aligned_or_halves(block + 2, w.words);
    w.factor = load_f16(block);
    return w;
  }
};

// Returns one of a word's bytes as a float.
WINNOW_DEVICE float float_of_byte(std::uint32_t word, unsigned i) {
  constexpr float kWholeBytes = 8388608.0F;
  return simt::float_of(simt::permute_bytes(word, 0x4B000000U, 0x7440U | i)) - kWholeBytes;
}

// q4_K and q5_K: two neighbouring blocks of 32 have the low and the high nibbles of 32 bytes, of which a lane has 16.
template <std::uint32_t kBytes, std::uint32_t kNibbles>
struct BlocksWithMinima : LargeBlocks {
  WINNOW_DEVICE static Lane lane_of(std::uint32_t lane) {
    const std::uint32_t block = lane / 8, of_eight = lane % 8;
    return {.block = kBytes * block,
            .run = kBytes * block + kNibbles + 16 * of_eight,
            .high = kBytes * block + 16 + 16 * (of_eight % 2),
            .factors = 8 * (of_eight & 2U),
            .numbers = 256 * block + 64 * (of_eight / 2) + 16 * (of_eight % 2),
            .scales = 16 * block + 4 * (of_eight / 2)};
  }

  WINNOW_DEVICE static EightBits load(const std::int8_t* numbers, const float* scales, const Lane& lane) {
    EightBits x;
    load_run(numbers + lane.numbers, x.words);
    load_run(numbers + lane.numbers + 32, x.words + 4);
    const simt::Words4 words = simt::load_16(scales + lane.scales);
    x.scales[0] = simt::float_of(words.x[0]);
    x.scales[1] = simt::float_of(words.x[2]);
    // Each lane of a pair has the minimum of one block.
    x.sum = simt::float_of(simt::lane() % 2 == 0 ? words.x[1] : words.x[3]);
    return x;
  }

  // The block's first 16 bytes are d and dmin, then the scales and minima in 6 bits each. Those of blocks 0 to 3 are
  // the low six bits of the first eight bytes, whose upper two bits belong to blocks 4 to 7.
  template <class Weights>
  WINNOW_DEVICE static void load_factors(SharedAddress unit, const Lane& lane, Weights& w) {
    const simt::Words4 head = simt::load_shared_16(unit + lane.block);
    const bool is_late = simt::lane() % 8 >= 4;
    const std::uint32_t scales = head.x[1] >> lane.factors, minima = head.x[2] >> lane.factors,
                        late = head.x[3] >> lane.factors;
    const std::uint32_t two_scales = is_late ? (late & 0x0F0FU) | (scales >> 2U & 0x3030U) : scales & 0x3F3FU;
    const std::uint32_t two_minima = is_late ? (late >> 4U & 0x0F0FU) | (minima >> 2U & 0x3030U) : minima & 0x3F3FU;
    const float d = simt::low_f16(head.x[0]);
    w.factors[0] = simt::multiply(d, float_of_byte(two_scales, 0));
    w.factors[1] = simt::multiply(d, float_of_byte(two_scales, 1));
    const float minimum = float_of_byte(two_minima, static_cast<unsigned>(simt::lane() % 2));
    w.minimum = -simt::multiply(simt::high_f16(head.x[0]), minimum);
  }
};

struct Q4_K : BlocksWithMinima<144, 16> {
  static constexpr WeightType kType = WeightType::kQ4_K;
  using Weights = TwoRuns<true>;

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    Weights w;
    load_factors(unit, lane, w);
    w.factors[1] = simt::multiply(w.factors[1], 0.0625F);  // for high nibbles, which are not shifted
    const simt::Words4 nibbles = simt::load_shared_16(unit + lane.run);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      w.words[i] = nibbles.x[i] & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles.x[i] & 0xF0F0F0F0U;
    }
    return w;
  }
};

struct Q5_K : BlocksWithMinima<176, 48> {
  static constexpr WeightType kType = WeightType::kQ5_K;
  using Weights = TwoRuns<false>;

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    Weights w;
    load_factors(unit, lane, w);
    const simt::Words4 fifths = simt::load_shared_16(unit + lane.high);
    const simt::Words4 nibbles = simt::load_shared_16(unit + lane.run);
    const auto shift = static_cast<unsigned>(simt::lane() & 6);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = fifths.x[i] >> shift;
      w.words[i] = (nibbles.x[i] & 0x0F0F0F0FU) | (bits & 0x01010101U) << 4U;
      w.words[4 + i] = (nibbles.x[i] >> 4U & 0x0F0F0F0FU) | (bits >> 1U & 0x01010101U) << 4U;
    }
    return w;
  }
};

struct Q6_K : LargeBlocks {
  static constexpr WeightType kType = WeightType::kQ6_K;
  using Weights = TwoRuns<false>;

  WINNOW_DEVICE static Lane lane_of(std::uint32_t lane) {
    const std::uint32_t block = lane / 8, of_eight = lane % 8, half = of_eight / 4, of_half = of_eight % 4;
    return {.block = 210 * block,
            .run = 210 * block + 16 * of_eight,
            .high = 210 * block + 128 + 32 * half + 16 * (of_half % 2),
            .factors = 210 * block + 192 + 8 * half + of_half,
            .numbers = 256 * block + 128 * half + 16 * of_half,
            .scales = 16 * block + 8 * half + 2 * (of_half / 2)};
  }

  WINNOW_DEVICE static EightBits load(const std::int8_t* numbers, const float* scales, const Lane& lane) {
    EightBits x;
    load_run(numbers + lane.numbers, x.words);
    load_run(numbers + lane.numbers + 64, x.words + 4);
    x.scales[0] = scales[lane.scales];
    x.scales[1] = scales[lane.scales + 4];
    x.sum = 0;
    return x;
  }

  WINNOW_DEVICE static Weights load_weights(SharedAddress unit, const Lane& lane) {
    std::uint32_t nibbles[4], pairs[4];
    load_words_of_halves(unit + lane.run, nibbles);
    load_words_of_halves(unit + lane.high, pairs);
    const auto shift = static_cast<unsigned>(simt::lane() & 2);
    Weights w;
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = pairs[i] >> shift;
      w.words[i] = subtract_bytes((nibbles[i] & 0x0F0F0F0FU) | (bits & 0x03030303U) << 4U, 0x20202020U);
      w.words[4 + i] = subtract_bytes((nibbles[i] >> 4U & 0x0F0F0F0FU) | (bits & 0x30303030U), 0x20202020U);
    }
    const float d = load_f16(unit + lane.block + 208);
    const SharedAddress scales = unit + lane.factors;
    w.factors[0] = simt::multiply(d, static_cast<float>(simt::load_shared<std::int8_t>(scales)));
    w.factors[1] = simt::multiply(d, static_cast<float>(simt::load_shared<std::int8_t>(scales + 4)));
    w.minimum = 0;
    return w;
  }
};

// Floating-point types: a lane has one of every 32 16-byte words.
template <WeightType type>
struct Floats {
  static constexpr WeightType kType = type;
  static constexpr int kOfWord = type == WeightType::kF32 ? 4 : 8;
  static constexpr int kWords = kUnit / 32 / kOfWord;
  WINNOW_DEVICE static Lane lane_of(std::uint32_t lane) {
    return {.block = 16 * lane, .run = 0, .high = 0, .factors = 0, .numbers = kOfWord * lane, .scales = 0};
  }

  WINNOW_DEVICE static float number(const simt::Words4& word, int i) {
    if constexpr (type == WeightType::kF32) return simt::float_of(word.x[i]);
    const std::uint32_t pair = word.x[i / 2];
    if constexpr (type == WeightType::kF16) return i % 2 == 0 ? simt::low_f16(pair) : simt::high_f16(pair);
    return i % 2 == 0 ? simt::low_bf16(pair) : simt::high_bf16(pair);
  }
};

template <class Type>
inline constexpr bool kIsFloat = is_float_type(Type::kType);

}  // namespace products
}  // namespace winnow::device
