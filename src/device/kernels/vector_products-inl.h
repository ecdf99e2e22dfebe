// Products of a step's few rows with stored weights, at the speed of the memory that the weights lie in.
//
// A warp takes two rows of weights at a time and streams them in units of 1,024 numbers through a ring of its own in
// shared memory, from two rows into the next two: a multiprocessor always has some 60 KiB of weights under way,
// whatever alignment the blocks of their type have. Of a unit every lane has 32 numbers, whose place depends on the
// type. Sums stay in the lane until the row ends, so their order is the same for any number of rows of x and of
// weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace products {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kUnit = 1024;

// Where a type has its blocks.
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

// The same of a type as kernels have it.
template <class Type>
inline constexpr int kBlockNumbers = layout_of(Type::kType).block_numbers;
template <class Type>
inline constexpr int kBlockBytes = layout_of(Type::kType).block_bytes;
template <class Type>
inline constexpr int kUnitBytesOf = kUnit / kBlockNumbers<Type>* kBlockBytes<Type>;

constexpr int larger(int a, int b) { return a > b ? a : b; }

WINNOW_DEVICE std::uint32_t load_half_word(const std::byte* from) {
  return *reinterpret_cast<const std::uint16_t*>(from);
}

// Returns the four words from an address that is a multiple of 2, of which the words around it are read, too.
WINNOW_DEVICE void load_words_of_halves(const std::byte* from, std::uint32_t (&to)[4]) {
  struct alignas(8) Pair {
    std::uint32_t x[2];
  };
  const auto offset = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) & 7U);
  const auto* pairs = reinterpret_cast<const Pair*>(from - offset);
  const Pair a = pairs[0], b = pairs[1], c = pairs[2];
  const bool skips = offset >= 4;
  const std::uint32_t words[5] = {skips ? a.x[1] : a.x[0], skips ? b.x[0] : a.x[1], skips ? b.x[1] : b.x[0],
                                  skips ? c.x[0] : b.x[1], skips ? c.x[1] : c.x[0]};
  const unsigned selector = (offset & 2U) != 0 ? 0x5432U : 0x3210U;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = simt::permute_bytes(words[i], words[i + 1], selector);
}

template <int n>
WINNOW_DEVICE void load_aligned_or_halves(const std::byte* from, std::uint32_t (&to)[n]) {
  const auto offset = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) & 3U);
  const auto* words = reinterpret_cast<const std::uint32_t*>(from - offset);
  const unsigned selector = offset != 0 ? 0x5432U : 0x3210U;
  std::uint32_t word = words[0];
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) {
    const std::uint32_t next = words[i + 1];
    to[i] = simt::permute_bytes(word, next, selector);
    word = next;
  }
}

// Sums of products of bytes are added to a float's bits, of a size at which the last bit is 1: that converts them.
inline constexpr std::uint32_t kWholeBits = 0x4B400000U;
inline constexpr float kWhole = 12582912.0F;

template <int n>
WINNOW_DEVICE float dot(const std::uint32_t* a, const std::uint32_t* b) {
  auto sum = static_cast<std::int32_t>(kWholeBits);
  WINNOW_UNROLL
  for (int i = 0; i < n; ++i) sum = simt::dot_bytes(a[i], b[i], sum);
  return simt::float_of(static_cast<std::uint32_t>(sum)) - kWhole;
}

// Bytes of 0 to 127 less a number, as signed bytes.
WINNOW_DEVICE std::uint32_t subtract_bytes(std::uint32_t bytes, std::uint32_t less) {
  return ((bytes | 0x80808080U) - less) ^ 0x80808080U;
}

// What a lane has of a unit in 8 bits: two runs of 16 numbers and the scales of their blocks; beside them the scaled
// sum of the block by which a type's minima are multiplied.
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

// Types whose blocks have 32 numbers: a lane has one block.
struct SmallBlocks {
  static constexpr int kLaneNumbers = 32;

  WINNOW_DEVICE static EightBits load(const std::int8_t* numbers, const float* scales, int lane) {
    EightBits x;
    load_run(numbers + 32 * lane, x.words);
    load_run(numbers + 32 * lane + 16, x.words + 4);
    const ScaleAndSum both = *reinterpret_cast<const ScaleAndSum*>(scales + 2 * lane);
    x.scales[0] = both.scale;
    x.scales[1] = both.scale;
    x.sum = both.sum;
    return x;
  }
};

// The first number of a lane's first run in the eight lanes' block of 256, and the distance of its second.
struct Runs {
  int first;
  int distance;
};

// Types whose blocks have 256 numbers, of which eight lanes have two runs each.
template <class Type>
struct LargeBlocks {
  static constexpr int kLaneNumbers = 256;  // of eight lanes

  WINNOW_DEVICE static EightBits load(const std::int8_t* numbers, const float* scales, int lane) {
    const int block = lane / 8;
    const Runs runs = Type::runs(lane % 8);
    EightBits x;
    load_run(numbers + 256 * block + runs.first, x.words);
    load_run(numbers + 256 * block + runs.first + runs.distance, x.words + 4);
    const float* of_block = scales + 16 * block;
    if constexpr (Type::kHasMinima) {
      // The two blocks of 32 are neighbours, and the lane's minimum is one of theirs.
      const simt::Words4 words = simt::load_16(of_block + runs.first / 32 * 2);
      x.scales[0] = simt::float_of(words.x[0]);
      x.scales[1] = simt::float_of(words.x[2]);
      x.sum = simt::float_of(lane % 2 == 0 ? words.x[1] : words.x[3]);
    } else {
      x.scales[0] = of_block[runs.first / 32 * 2];
      x.scales[1] = of_block[(runs.first + runs.distance) / 32 * 2];
      x.sum = 0;
    }
    return x;
  }
};

// Weights of a lane: runs as signed bytes, and a factor for each.
struct TwoRuns {
  std::uint32_t words[8];
  float factors[2];
  float minimum;  // is multiplied by the sum and added

  WINNOW_DEVICE float add_product(const EightBits& x, float sum) const {
    sum = simt::fma(simt::multiply(factors[0], x.scales[0]), dot<4>(words, x.words), sum);
    sum = simt::fma(simt::multiply(factors[1], x.scales[1]), dot<4>(words + 4, x.words + 4), sum);
    return simt::fma(minimum, x.sum, sum);
  }
};

// The same with one factor, and without a minimum where the type has none.
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

struct Q4_0 : SmallBlocks {
  static constexpr WeightType kType = WeightType::kQ4_0;
  using Weights = OneRun<true>;

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const std::byte* block = unit + 18 * lane;
    Weights w;
    std::uint32_t nibbles[4];
    load_aligned_or_halves(block + 2, nibbles);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      w.words[i] = nibbles[i] & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles[i] >> 4U & 0x0F0F0F0FU;
    }
    w.factor = simt::low_f16(load_half_word(block));
    w.minimum = -8.0F * w.factor;
    return w;
  }
};

struct Q4_1 : SmallBlocks {
  static constexpr WeightType kType = WeightType::kQ4_1;
  using Weights = OneRun<true>;

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const auto* block = reinterpret_cast<const std::uint32_t*>(unit + 20 * lane);
    Weights w;
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t nibbles = block[1 + i];
      w.words[i] = nibbles & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles >> 4U & 0x0F0F0F0FU;
    }
    const std::uint32_t both = block[0];
    w.factor = simt::low_f16(both);
    w.minimum = simt::high_f16(both);
    return w;
  }
};

struct Q8_0 : SmallBlocks {
  static constexpr WeightType kType = WeightType::kQ8_0;
  using Weights = OneRun<false>;

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const std::byte* block = unit + 34 * lane;
    Weights w;
    load_aligned_or_halves(block + 2, w.words);
    w.factor = simt::low_f16(load_half_word(block));
    return w;
  }
};

// The float of one of a word's bytes.
WINNOW_DEVICE float float_of_byte(std::uint32_t word, unsigned i) {
  constexpr float kWholeBytes = 8388608.0F;
  return simt::float_of(simt::permute_bytes(word, 0x4B000000U, 0x7440U | i)) - kWholeBytes;
}

// The lane's factors of a q4_K or q5_K block, whose first 16 bytes these are: d and dmin, then 12 bytes with the scales
// and minima in 6 bits each. Scales 0 to 3 and minima 0 to 3 are the low six bits of the first eight bytes, whose other
// bits are the upper two of those from 4 on.
WINNOW_DEVICE void load_factors(const std::byte* block, int of_eight, TwoRuns& w) {
  const simt::Words4 head = simt::load_shared_16(block);
  const bool is_late = of_eight >= 4;
  const auto shift = static_cast<unsigned>(of_eight & 2) * 8U;
  const std::uint32_t scales = head.x[1] >> shift, minima = head.x[2] >> shift, late = head.x[3] >> shift;
  const std::uint32_t two_scales = is_late ? (late & 0x0F0FU) | (scales >> 2U & 0x3030U) : scales & 0x3F3FU;
  const std::uint32_t two_minima = is_late ? (late >> 4U & 0x0F0FU) | (minima >> 2U & 0x3030U) : minima & 0x3F3FU;
  const float d = simt::low_f16(head.x[0]);
  w.factors[0] = simt::multiply(d, float_of_byte(two_scales, 0));
  w.factors[1] = simt::multiply(d, float_of_byte(two_scales, 1));
  w.minimum =
      -simt::multiply(simt::high_f16(head.x[0]), float_of_byte(two_minima, static_cast<unsigned>(of_eight & 1)));
}

struct Q4_K : LargeBlocks<Q4_K> {
  static constexpr WeightType kType = WeightType::kQ4_K;
  static constexpr bool kHasMinima = true;
  using Weights = TwoRuns;

  WINNOW_DEVICE static Runs runs(int of_eight) { return {64 * (of_eight / 2) + 16 * (of_eight % 2), 32}; }

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const std::byte* block = unit + 144 * (lane / 8);
    Weights w;
    load_factors(block, lane % 8, w);
    const simt::Words4 nibbles = simt::load_shared_16(block + 16 + 16 * (lane % 8));
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      w.words[i] = nibbles.x[i] & 0x0F0F0F0FU;
      w.words[4 + i] = nibbles.x[i] >> 4U & 0x0F0F0F0FU;
    }
    return w;
  }
};

struct Q5_K : LargeBlocks<Q5_K> {
  static constexpr WeightType kType = WeightType::kQ5_K;
  static constexpr bool kHasMinima = true;
  using Weights = TwoRuns;

  WINNOW_DEVICE static Runs runs(int of_eight) { return Q4_K::runs(of_eight); }

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const std::byte* block = unit + 176 * (lane / 8);
    const int of_eight = lane % 8;
    Weights w;
    load_factors(block, of_eight, w);
    const simt::Words4 fifths = simt::load_shared_16(block + 16 + 16 * (of_eight % 2));
    const simt::Words4 nibbles = simt::load_shared_16(block + 48 + 16 * of_eight);
    const auto shift = static_cast<unsigned>(of_eight & ~1);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = fifths.x[i] >> shift;
      w.words[i] = (nibbles.x[i] & 0x0F0F0F0FU) | (bits & 0x01010101U) << 4U;
      w.words[4 + i] = (nibbles.x[i] >> 4U & 0x0F0F0F0FU) | (bits >> 1U & 0x01010101U) << 4U;
    }
    return w;
  }
};

struct Q6_K : LargeBlocks<Q6_K> {
  static constexpr WeightType kType = WeightType::kQ6_K;
  static constexpr bool kHasMinima = false;
  using Weights = TwoRuns;

  WINNOW_DEVICE static Runs runs(int of_eight) { return {128 * (of_eight / 4) + 16 * (of_eight % 4), 64}; }

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    const std::byte* block = unit + 210 * (lane / 8);
    const int of_eight = lane % 8;
    const int half = of_eight / 4, of_half = of_eight % 4;
    std::uint32_t nibbles[4], pairs[4];
    load_words_of_halves(block + 16 * of_eight, nibbles);
    load_words_of_halves(block + 128 + 32 * half + 16 * (of_half % 2), pairs);
    const auto shift = static_cast<unsigned>(of_half & ~1);
    Weights w;
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t bits = pairs[i] >> shift;
      w.words[i] = subtract_bytes((nibbles[i] & 0x0F0F0F0FU) | (bits & 0x03030303U) << 4U, 0x20202020U);
      w.words[4 + i] = subtract_bytes((nibbles[i] >> 4U & 0x0F0F0F0FU) | (bits & 0x30303030U), 0x20202020U);
    }
    const float d = simt::low_f16(load_half_word(block + 208));
    const auto* scales = reinterpret_cast<const std::int8_t*>(block + 192 + 8 * half + of_half);
    w.factors[0] = simt::multiply(d, static_cast<float>(scales[0]));
    w.factors[1] = simt::multiply(d, static_cast<float>(scales[4]));
    w.minimum = 0;
    return w;
  }
};

// Types of floats: of every 32 words of 16 bytes a lane has one.
template <WeightType type>
struct Floats {
  static constexpr WeightType kType = type;
  static constexpr int kOfWord = type == WeightType::kF32 ? 4 : 8;
  static constexpr int kWords = kUnit / 32 / kOfWord;
  struct Weights {
    simt::Words4 words[kWords];
  };

  WINNOW_DEVICE static float number(const simt::Words4& word, int i) {
    if constexpr (type == WeightType::kF32) return simt::float_of(word.x[i]);
    const std::uint32_t pair = word.x[i / 2];
    if constexpr (type == WeightType::kF16) return i % 2 == 0 ? simt::low_f16(pair) : simt::high_f16(pair);
    return i % 2 == 0 ? simt::low_bf16(pair) : simt::high_bf16(pair);
  }

  WINNOW_DEVICE static Weights load_weights(const std::byte* unit, int lane) {
    Weights w;
    WINNOW_UNROLL
    for (int k = 0; k < kWords; ++k) w.words[k] = simt::load_shared_16(unit + 16 * (32 * k + lane));
    return w;
  }
};

template <class Type>
inline constexpr bool kIsFloat = is_float_type(Type::kType);

// How many rows of weights a warp takes at a time, and how many blocks a multiprocessor shall have room for.
template <class Type>
inline constexpr int kTaken = Type::kType == WeightType::kF32 ? 1 : 2;
template <class Type, int kRows>
inline constexpr int kBlocks = kRows <= 2                        ? 6
                               : kRows == 4                      ? 5
                               : Type::kType == WeightType::kF32 ? 2
                                                                 : 4;

// The ring of a warp.
template <class A, class B>
struct Ring {
  static constexpr int kMostBytes = larger(kUnitBytesOf<A>, kUnitBytesOf<B>);
  // A row may begin up to 14 bytes behind a multiple of 16, and up to 8 bytes behind its end are read.
  static constexpr int kRowBytes = (kMostBytes + 14 + 15) / 16 * 16 + 16;
  static constexpr int kUnitBytes = kTaken<A> * kRowBytes;
  static constexpr int kUnits = 5120 / kUnitBytes < 3 ? 3 : 5120 / kUnitBytes < 6 ? 5120 / kUnitBytes : 6;
  static constexpr int kBytes = kUnits * kUnitBytes;
};

template <class Type>
inline constexpr bool kIsAligned = kBlockBytes<Type> % 16 == 0 || kIsFloat<Type>;

// Some rows of a part, which a warp takes at a time.
struct Group {
  const ProductPart& part;
  int row;
  int n_rows;
};

// The groups of all parts.
template <int kN>
struct Groups {
  int first;   // the first part's
  int second;  // those of the first two
  int n;

  WINNOW_DEVICE static int of_part(const VectorProduct& plan, int p) {
    return p < plan.n_parts ? (plan.parts[p].n_out + kN - 1) / kN : 0;
  }
  WINNOW_DEVICE static Groups of(const VectorProduct& plan) {
    Groups groups;
    groups.first = of_part(plan, 0);
    groups.second = groups.first + of_part(plan, 1);
    groups.n = groups.second + of_part(plan, 2);
    return groups;
  }
  WINNOW_DEVICE Group find(const VectorProduct& plan, int i) const {
    const int before = i < first ? 0 : i < second ? first : second;
    const ProductPart& part = i < first ? plan.parts[0] : i < second ? plan.parts[1] : plan.parts[2];
    const int row = (i - before) * kN;
    return {part, row, simt::min(kN, part.n_out - row)};
  }
};

// The copies that a warp starts, unit after unit of its groups.
template <class A, class B>
struct Reader {
  static constexpr int kN = kTaken<A>;
  using WarpRing = Ring<A, B>;

  int group;
  int unit;
  const std::byte* from;  // the unit of the group's first row
  int row_bytes;
  int next_row;  // bytes from the first row to the second, or 0 where there is none
  bool is_b;
  // Of the units that were started last, four bits each, the last one in the low bits: how many bytes behind a multiple
  // of 16 each row's begins, and whether it is B's.
  std::uint32_t skipped[kN];
  std::uint32_t are_b;

  WINNOW_DEVICE int unit_bytes() const {
    if constexpr (std::is_same_v<A, B>) return kUnitBytesOf<A>;
    return is_b ? kUnitBytesOf<B> : kUnitBytesOf<A>;
  }

  WINNOW_DEVICE void go_to(const VectorProduct& plan, const Groups<kN>& groups, int to) {
    group = to;
    unit = 0;
    if (to >= groups.n) return;
    const Group found = groups.find(plan, to);
    row_bytes = plan.n_in / kBlockNumbers<A> * kBlockBytes<A>;
    if constexpr (!std::is_same_v<A, B>) {
      is_b = found.part.type == B::kType;
      if (is_b) row_bytes = plan.n_in / kBlockNumbers<B> * kBlockBytes<B>;
    }
    from = static_cast<const std::byte*>(found.part.weight) + static_cast<std::int64_t>(found.row) * row_bytes;
    next_row = found.n_rows > 1 ? row_bytes : 0;
  }

  WINNOW_DEVICE void start(const VectorProduct& plan, const Groups<kN>& groups, int n_units, int n_workers,
                           std::byte* to) {
    if constexpr (!std::is_same_v<A, B>) are_b = are_b << 4U | (is_b ? 1U : 0U);
    if (group < groups.n) {
      const int n_bytes = simt::min(unit_bytes(), row_bytes - unit * unit_bytes());
      constexpr int kWords = (WarpRing::kRowBytes / 16 - 1 + 31) / 32;
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) {
        const std::byte* row = r == 0 ? from : from + next_row;
        int n_words = (n_bytes + 15) / 16;
        if constexpr (!kIsAligned<A> || !kIsAligned<B>) {
          const auto beyond = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(row) & 15U);
          skipped[r] = skipped[r] << 4U | beyond;
          n_words = (n_bytes + static_cast<int>(beyond) + 15) / 16;
          row -= beyond;
        }
        row += 16 * simt::lane();
        std::byte* to_row = to + r * WarpRing::kRowBytes + 16 * simt::lane();
        WINNOW_UNROLL
        for (int i = 0; i < kWords; ++i) {
          if (simt::lane() + 32 * i < n_words) simt::copy_async_16_once(to_row + 512 * i, row + 512 * i);
        }
      }
      from += unit_bytes();
      if (++unit == n_units) go_to(plan, groups, group + n_workers);
    } else if constexpr (!kIsAligned<A> || !kIsAligned<B>) {
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) skipped[r] <<= 4U;
    }
    simt::commit_copies();
  }

  // Of the unit that was started kUnits - 1 units before the last one.
  WINNOW_DEVICE int skipped_of_oldest(int r) const {
    if constexpr (kIsAligned<A> && kIsAligned<B>) return 0;
    return static_cast<int>(skipped[r] >> (4 * (WarpRing::kUnits - 1)) & 15U);
  }
  WINNOW_DEVICE bool is_oldest_b() const { return (are_b >> (4 * (WarpRing::kUnits - 1)) & 1U) != 0; }
};

template <class Type, class A, class B, int kRows>
WINNOW_DEVICE void add_unit(const VectorProduct& plan, const Reader<A, B>& reader, int unit, const std::byte* from,
                            float (&sums)[kTaken<A>][kRows]) {
  constexpr int kN = kTaken<A>;
  const int n_left = plan.n_in - unit * kUnit;
  const int lane = simt::lane();
  if constexpr (!kIsFloat<Type>) {
    if (lane * 32 / Type::kLaneNumbers * Type::kLaneNumbers >= n_left) return;
  }
  typename Type::Weights w[kN];
  WINNOW_UNROLL
  for (int r = 0; r < kN; ++r) {
    w[r] = Type::load_weights(from + r * Ring<A, B>::kRowBytes + reader.skipped_of_oldest(r), lane);
  }
  WINNOW_UNROLL
  for (int x = 0; x < kRows; ++x) {
    const int x_row = x == 0 ? 0 : simt::min(x, plan.n_rows - 1);
    const auto at = static_cast<std::uint32_t>(x_row * plan.n_in + unit * kUnit);
    if constexpr (kIsFloat<Type>) {
      WINNOW_UNROLL
      for (int k = 0; k < Type::kWords; ++k) {
        const int i = Type::kOfWord * (32 * k + lane);
        if (i >= n_left) continue;
        simt::Words4 words[Type::kOfWord / 4];
        WINNOW_UNROLL
        for (int q = 0; q < Type::kOfWord / 4; ++q) words[q] = simt::load_16(plan.x_float + at + i + 4 * q);
        WINNOW_UNROLL
        for (int r = 0; r < kN; ++r) {
          WINNOW_UNROLL
          for (int j = 0; j < Type::kOfWord; ++j) {
            sums[r][x] = simt::fma(Type::number(w[r].words[k], j), simt::float_of(words[j / 4].x[j % 4]), sums[r][x]);
          }
        }
      }
    } else {
      const EightBits row = Type::load(plan.x.numbers + at, plan.x.scales + (at >> 4U), lane);
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) sums[r][x] = w[r].add_product(row, sums[r][x]);
    }
  }
}

// Adds up the lanes' sums and stores a group's results.
template <int kN, int kRows>
WINNOW_DEVICE void finish(const VectorProduct& plan, const Group& group, float (&sums)[kN][kRows]) {
  static_assert(kN * kRows <= 32);
  float own = 0;
  WINNOW_UNROLL
  for (int r = 0; r < kN; ++r) {
    WINNOW_UNROLL
    for (int x = 0; x < kRows; ++x) {
      float sum = sums[r][x];
      WINNOW_UNROLL
      for (int mask = 1; mask < 32; mask *= 2) sum += simt::shuffle_xor(sum, mask);
      if (simt::lane() == r * kRows + x) own = sum;
      sums[r][x] = 0;
    }
  }
  const int r = simt::lane() / kRows, x = simt::lane() % kRows;
  if (r >= group.n_rows || x >= plan.n_rows) return;
  const int out = group.row + r;
  const std::int64_t at = static_cast<std::int64_t>(x) * group.part.n_out + out;
  if (group.part.bias != nullptr) own += group.part.bias[out];
  if (group.part.add != nullptr) own += group.part.add[at];
  group.part.y[at] = own;
}

template <class A, class B, int kRows>
WINNOW_KERNEL void WINNOW_THREADS(kThreads, (kBlocks<A, kRows>)) multiply(VectorProduct plan) {
  using WarpRing = Ring<A, B>;
  constexpr int kN = kTaken<A>;
  std::byte* ring = simt::shared() + simt::warp() * WarpRing::kBytes;
  const Groups<kN> groups = Groups<kN>::of(plan);
  const int n_units = (plan.n_in + kUnit - 1) / kUnit;
  const int n_workers = simt::grid_x() * kWarps;
  // Neighbouring groups go to different blocks: what is left over in the end is spread over the device.
  int group = simt::warp() * simt::grid_x() + simt::block_x();
  Reader<A, B> reader = {};
  reader.go_to(plan, groups, group);
  WINNOW_UNROLL
  for (int s = 0; s < WarpRing::kUnits - 1; ++s) {
    reader.start(plan, groups, n_units, n_workers, ring + s * WarpRing::kUnitBytes);
  }
  simt::wait_for_previous();
  simt::let_next_begin();
  float sums[kN][kRows] = {};
  int slot = 0, unit = 0;
  WINNOW_NO_UNROLL
  while (group < groups.n) {
    simt::wait_copies<WarpRing::kUnits - 2>();
    simt::warp_barrier();
    const int free_slot = slot == 0 ? WarpRing::kUnits - 1 : slot - 1;
    reader.start(plan, groups, n_units, n_workers, ring + free_slot * WarpRing::kUnitBytes);
    const std::byte* from = ring + slot * WarpRing::kUnitBytes;
    if constexpr (std::is_same_v<A, B>) {
      add_unit<A>(plan, reader, unit, from, sums);
    } else if (reader.is_oldest_b()) {
      add_unit<B>(plan, reader, unit, from, sums);
    } else {
      add_unit<A>(plan, reader, unit, from, sums);
    }
    slot = slot == WarpRing::kUnits - 1 ? 0 : slot + 1;
    if (++unit < n_units) continue;
    finish(plan, groups.find(plan, group), sums);
    unit = 0;
    group += n_workers;
  }
}

template <class A, class B, int kRows>
void queue_of_rows(simt::Queue& queue, const VectorProduct& plan) {
  constexpr int kN = kTaken<A>;
  int n_groups = 0;
  for (int p = 0; p < plan.n_parts; ++p) n_groups += (plan.parts[p].n_out + kN - 1) / kN;
  const auto kernel = multiply<A, B, kRows>;
  constexpr std::size_t shared_bytes = static_cast<std::size_t>(kWarps) * Ring<A, B>::kBytes;
  const int n_resident = simt::resident_blocks(queue, kThreads, shared_bytes, kernel);
  const int n_needed = (n_groups + kWarps - 1) / kWarps;
  const auto n_blocks = static_cast<unsigned>(n_needed < n_resident ? n_needed : n_resident);
  simt::launch_overlapping(queue, {n_blocks}, kThreads, shared_bytes, kernel, plan);
}

template <class A, class B = A>
void queue_of_types(simt::Queue& queue, const VectorProduct& plan) {
  if (plan.n_rows == 1) return queue_of_rows<A, B, 1>(queue, plan);
  if (plan.n_rows == 2) return queue_of_rows<A, B, 2>(queue, plan);
  if (plan.n_rows <= 4) return queue_of_rows<A, B, 4>(queue, plan);
  queue_of_rows<A, B, 8>(queue, plan);
}

inline void queue_of_one_type(simt::Queue& queue, const VectorProduct& plan) {
  switch (plan.parts[0].type) {
    case WeightType::kF32:
      return queue_of_types<Floats<WeightType::kF32>>(queue, plan);
    case WeightType::kF16:
      return queue_of_types<Floats<WeightType::kF16>>(queue, plan);
    case WeightType::kBF16:
      return queue_of_types<Floats<WeightType::kBF16>>(queue, plan);
    case WeightType::kQ4_0:
      return queue_of_types<Q4_0>(queue, plan);
    case WeightType::kQ4_1:
      return queue_of_types<Q4_1>(queue, plan);
    case WeightType::kQ8_0:
      return queue_of_types<Q8_0>(queue, plan);
    case WeightType::kQ4_K:
      return queue_of_types<Q4_K>(queue, plan);
    case WeightType::kQ5_K:
      return queue_of_types<Q5_K>(queue, plan);
    case WeightType::kQ6_K:
      return queue_of_types<Q6_K>(queue, plan);
  }
}

}  // namespace products

// One launch where all parts have one type, or q4_K or q5_K beside q6_K, as files mix them; else one for each part.
inline void queue_vector_product(simt::Queue& queue, const VectorProduct& plan) {
  int n_q4 = 0, n_q5 = 0, n_q6 = 0, n_like_first = 0;
  for (int p = 0; p < plan.n_parts; ++p) {
    const WeightType type = plan.parts[p].type;
    n_q4 += type == WeightType::kQ4_K ? 1 : 0;
    n_q5 += type == WeightType::kQ5_K ? 1 : 0;
    n_q6 += type == WeightType::kQ6_K ? 1 : 0;
    n_like_first += type == plan.parts[0].type ? 1 : 0;
  }
  if (n_like_first == plan.n_parts) return products::queue_of_one_type(queue, plan);
  if (n_q4 + n_q6 == plan.n_parts) return products::queue_of_types<products::Q4_K, products::Q6_K>(queue, plan);
  if (n_q5 + n_q6 == plan.n_parts) return products::queue_of_types<products::Q5_K, products::Q6_K>(queue, plan);
  for (int p = 0; p < plan.n_parts; ++p) {
    VectorProduct one = plan;
    one.n_parts = 1;
    one.parts[0] = plan.parts[p];
    products::queue_of_one_type(queue, one);
  }
}

}  // namespace winnow::device
