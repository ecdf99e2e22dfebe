// The products of a decoding step in 16-bit integers, for block-quantised types: expanded to float32 they take more
// instructions than f16, although f16 has more bytes. Queries are rounded to 15 bits of the largest number of their
// row, and weights to 15 bits of the largest of a page, since many small ones are summed. For vectors of 8 floats;
// wider vectors gain nothing from this.
#if defined(WINNOW_KERNELS_DECODE_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_DECODE_WORDS_INL_H_
#undef WINNOW_KERNELS_DECODE_WORDS_INL_H_
#else
#define WINNOW_KERNELS_DECODE_WORDS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/attention/decode_products-inl.h"
#include "kernels/attention/word_levels.h"
#include "kernels/entries/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Queries as words, [head_dim / 32][n_group][32]; a number is its word times its row's factor.
struct WordQueries {
  std::int16_t* words;
  float* factors;
  bool are_packed = false;
};

// The weights of a block of entries times the scales of their values, [blocks of a row][n_group][kEntryBlock], and
// factors [blocks of a row][n_group].
struct WordWeights {
  std::int16_t* words;
  float* factors;
};

inline constexpr bool kHasWordProducts = HWY_TARGET == HWY_AVX2;

// Writes the scores [n_group][kEntryBlock] of n keys, and packs the queries first unless they are packed.
template <class Row>
void score_words(const float* queries, WordQueries& words, int n_group, int head_dim, const Rows& keys, std::int32_t n,
                 Ahead& ahead, float* scores);

// Adds n values, times weights [n_group][kEntryBlock], to sums [n_group][head_dim].
template <class Row>
void add_words(const float* weights, const WordWeights& packed, int n_group, int head_dim, const Rows& values,
               std::int32_t n, Ahead& ahead, float* sums);

#if HWY_TARGET == HWY_AVX2

using I16 = hn::Repartition<std::int16_t, F>;
using I32 = hn::RebindToSigned<F>;
using VI16 = hn::Vec<I16>;
using VI32 = hn::Vec<I32>;
inline constexpr int kWords = 2 * kLanes;
inline constexpr int kUnitWords = 32;        // numbers of a row that are stored together
inline constexpr std::int32_t kAdded = 32;   // entries whose weighted words always fit into 32 bits
inline constexpr float kMaxWord = 32767.0F;  // largest word of queries and weights

// Returns sum + the products of every two neighbours (in x86's order).
HWY_INLINE VI32 add_pairs(VI32 sum, VI16 a, VI16 b) {
  VI32 unused = hn::Zero(I32());
  return hn::ReorderWidenMulAccumulate(I32(), a, b, sum, unused);
}

// Returns numbers [0, kWords) or [kWords, 2 kWords) of a unit as integers; a number is its integer over the scale of
// word_levels.h.
template <int kHalf>
HWY_INLINE VI16 load_words(Q8Row /*row*/, const std::byte* unit) {
  const hn::Rebind<std::int8_t, I16> i8;
  return hn::PromoteTo(I16(), hn::LoadU(i8, reinterpret_cast<const std::int8_t*>(unit) + kHalf * kWords));
}

template <int kHalf>
HWY_INLINE VI16 load_words(Q4Row /*row*/, const std::byte* unit) {
  const I16 d;
  const hn::Rebind<std::uint8_t, I16> u8;
  const VI16 both = hn::PromoteTo(d, hn::LoadU(u8, reinterpret_cast<const std::uint8_t*>(unit)));
  return hn::Sub(kHalf == 0 ? hn::And(both, hn::Set(d, 15)) : hn::ShiftRight<4>(both), hn::Set(d, 8));
}

template <int kHalf, int kBlock>
HWY_INLINE VI16 load_words(R4Row<kBlock> /*row*/, const std::byte* unit) {
  const Bytes16 d;
  const auto both = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(unit));
  const auto codes = kHalf == 0 ? hn::And(both, hn::Set(d, 15)) : hn::ShiftRight<4>(both);
  const auto low = hn::TableLookupBytes(hn::Load(d, kWordLevels4.low), codes);
  const auto high = hn::TableLookupBytes(hn::Load(d, kWordLevels4.high), codes);
  const auto all =
      hn::Combine(hn::Full256<std::uint8_t>(), hn::InterleaveUpper(d, low, high), hn::InterleaveLower(d, low, high));
  return hn::BitCast(I16(), all);
}

// For every word, the two bytes that hold a code's bits, and the factor that moves these bits to the top.
struct CodePlaces {
  constexpr explicit CodePlaces(int half) {
    for (int i = 0; i < kWords; ++i) {
      const int eight = 2 * half + i / 8, bit = i % 8 * 3;
      for (int j = 0; j < 2; ++j) {
        const int byte = std::min(bit / 8 + j, 2);
        bytes[2 * i + j] = static_cast<std::uint8_t>(eight < 3 ? 4 * eight + byte : 4 * byte + 3);
      }
      to_top[i] = static_cast<std::uint16_t>(1 << (13 - bit % 8));
    }
  }
  alignas(32) std::uint8_t bytes[2 * kWords] = {};
  alignas(32) std::uint16_t to_top[kWords] = {};
};
inline constexpr CodePlaces kCodePlaces[2] = {CodePlaces(0), CodePlaces(1)};

template <int kHalf, int kBlock>
HWY_INLINE VI16 load_words(R3Row<kBlock> /*row*/, const std::byte* unit) {
  const hn::Repartition<std::uint8_t, F> u8;
  const hn::Repartition<std::uint16_t, F> u16;
  const hn::Repartition<std::uint64_t, F> u64;
  std::uint64_t first;
  std::uint32_t last;
  std::memcpy(&first, unit, sizeof(first));
  std::memcpy(&last, unit + sizeof(first), sizeof(last));
  auto all = hn::Set(u64, first);
  if constexpr (kHalf == 1) all = hn::InterleaveLower(u64, all, hn::Set(u64, last));
  const auto pairs = hn::TableLookupBytes(hn::BitCast(u8, all), hn::Load(u8, kCodePlaces[kHalf].bytes));
  const auto codes = hn::ShiftRight<13>(hn::Mul(hn::BitCast(u16, pairs), hn::Load(u16, kCodePlaces[kHalf].to_top)));
  // The index of bytes 2 code and 2 code + 1 of the table.
  const auto index = hn::Add(hn::Mul(codes, hn::Set(u16, 0x0202)), hn::Set(u16, 0x0100));
  return hn::BitCast(I16(), hn::TableLookupBytes(hn::LoadDup128(u8, kWordLevels3.words), hn::BitCast(u8, index)));
}

template <class Row>
inline constexpr float kWordScale = 1.0F;
template <int kBlock>
inline constexpr float kWordScale<R4Row<kBlock>> = kWordLevels4.scale;
template <int kBlock>
inline constexpr float kWordScale<R3Row<kBlock>> = kWordLevels3.scale;

// The units of a block, and a unit's bytes.
template <class Row>
inline constexpr int kBlockUnits = Row::kScaleBlock / kUnitWords;
template <class Row>
inline constexpr int kUnitBytes = (Row::kBlockBytes - 2) / kBlockUnits<Row>;

// Returns the largest absolute value of n numbers.
HWY_INLINE float largest(const float* numbers, std::int32_t n) {
  const F d;
  VF most = hn::Zero(d);
  std::int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, numbers + i)));
  float result = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < n; ++i) result = std::max(result, std::abs(numbers[i]));
  return result;
}

// Stores numbers that fit in a word as words. (NearestInt handles larger ones, too, and takes three times as long.)
HWY_INLINE void store_words(VF numbers, std::int16_t* to) {
  const hn::Rebind<std::int16_t, F> i16;
  const VF rounding = hn::Set(F(), 12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const VI32 integers = hn::Sub(hn::BitCast(I32(), hn::Add(numbers, rounding)), hn::BitCast(I32(), rounding));
  hn::StoreU(hn::DemoteTo(i16, integers), i16, to);
}

// Packs queries [n_group][head_dim] as words.
HWY_INLINE void pack_word_queries(const float* HWY_RESTRICT queries, int n_group, int head_dim, WordQueries& out) {
  for (int g = 0; g < n_group; ++g) {
    const float most = largest(queries + g * head_dim, head_dim);
    const VF to_words = hn::Set(F(), most > 0 ? kMaxWord / most : 0.0F);
    for (int i = 0; i < head_dim; i += kLanes) {
      std::int16_t* to = out.words + (i / kUnitWords * n_group + g) * kUnitWords + i % kUnitWords;
      store_words(hn::Mul(hn::LoadU(F(), queries + g * head_dim + i), to_words), to);
    }
    out.factors[g] = most / kMaxWord;
  }
  out.are_packed = true;
}

// Writes the scores of n keys for kHeads heads, without the factors of queries and levels. queries: those of the first
// head, n_group to a unit.
template <class Row, int kHeads>
HWY_INLINE void score_block_of_words(const std::int16_t* HWY_RESTRICT queries, int n_group, int head_dim,
                                     const Rows& keys, std::int32_t n, Ahead& ahead, float* HWY_RESTRICT scores) {
  constexpr int kKeys = keys_at_a_time(kHeads);
  const std::ptrdiff_t unit_stride = std::ptrdiff_t{n_group} * kUnitWords;
  Ahead own = ahead;  // in registers
  for (std::int32_t i = 0; i < n; i += kKeys) {
    own.fetch();
    const std::byte* k[kKeys];
    VF sums[kHeads][kKeys];
    begin_scores(keys, i, n, k, sums);
    const float* scale = keys.scales + i;  // scales beyond the last row do not matter
    const std::int16_t* q = queries;
    for (int block = 0; block < head_dim; block += Row::kScaleBlock, scale += kEntryBlock) {
#pragma GCC unroll 4
      for (int unit = 0; unit < kBlockUnits<Row>; ++unit, q += unit_stride) {
#pragma GCC unroll 8
        for (int j = 0; j < kKeys; ++j) {
          const std::byte* at = k[j] + 2 + unit * kUnitBytes<Row>;
          const VI16 low = load_words<0>(Row(), at), high = load_words<1>(Row(), at);
          const VF factor = hn::Set(F(), scale[j]);
#pragma GCC unroll 8
          for (int h = 0; h < kHeads; ++h) {
            const VI32 of_low = add_pairs(hn::Zero(I32()), low, hn::LoadU(I16(), q + h * kUnitWords));
            const VI32 of_both = add_pairs(of_low, high, hn::LoadU(I16(), q + h * kUnitWords + kWords));
            sums[h][j] = hn::MulAdd(hn::ConvertTo(F(), of_both), factor, sums[h][j]);
          }
        }
      }
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) k[j] += Row::kBlockBytes;
    }
    store_scores(sums, i, scores);
  }
  ahead = own;
}

template <class Row>
void score_words(const float* queries, WordQueries& words, int n_group, int head_dim, const Rows& keys, std::int32_t n,
                 Ahead& ahead, float* scores) {
  if (!words.are_packed) pack_word_queries(queries, n_group, head_dim, words);
  const int n_passes = n_head_passes(n_group);
  ahead.spread(keys.stored_bytes, n_passes * std::max(1, n / keys_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    score_block_of_words<Row, decltype(heads)::value>(words.words + h * kUnitWords, n_group, head_dim, keys, n, ahead,
                                                      scores + h * kEntryBlock);
  });
  for (int g = 0; g < n_group; ++g, scores += kEntryBlock) {
    const float factor = words.factors[g] / kWordScale<Row>;
    std::int32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(F(), scores + i), hn::Set(F(), factor)), F(), scores + i);
    }
    for (; i < n; ++i) scores[i] *= factor;
  }
}

// Packs weights [n_group][kEntryBlock] times the scales [n_blocks][kEntryBlock] of n rows; words beyond the last row
// are zero as far as they are read.
template <class Row>
HWY_INLINE void pack_word_weights(const float* HWY_RESTRICT weights, int n_group, const float* HWY_RESTRICT scales,
                                  std::int32_t n, int n_blocks, const WordWeights& out) {
  const F d;
  float most[kMaxGroup], inverse[kMaxGroup];
  for (int g = 0; g < n_group; ++g) {
    most[g] = largest(weights + g * kEntryBlock, n);
    inverse[g] = most[g] > 0 ? 1.0F / most[g] : 0.0F;
  }
  std::int16_t* words = out.words;
  for (int block = 0; block < n_blocks; ++block, scales += kEntryBlock) {
    const float most_scale = largest(scales, n);
    const float to_words = most_scale > 0 ? kMaxWord / most_scale : 0.0F;
    for (int g = 0; g < n_group; ++g, words += kEntryBlock) {
      const VF factor = hn::Set(d, inverse[g] * to_words);
      for (std::int32_t i = 0; i < n; i += kLanes) {
        const VF scaled = hn::Mul(hn::LoadU(d, weights + g * kEntryBlock + i), hn::Load(d, scales + i));
        store_words(hn::Mul(scaled, factor), words + i);
      }
      if (n % 2 != 0) words[n] = 0;
      out.factors[block * n_group + g] = most[g] * most_scale / (kMaxWord * kWordScale<Row>);
    }
  }
}

// Adds two rows of kWords numbers, weighted, to kHeads heads' sums.
//   words: those of the first row and head
template <class Row, int kHalf, int kHeads>
HWY_INLINE void add_two_rows(const std::int16_t* HWY_RESTRICT words, const std::byte* a, const std::byte* b,
                             VI32 (&added)[kHeads][2]) {
  const VI16 of_a = load_words<kHalf>(Row(), a), of_b = load_words<kHalf>(Row(), b);
  const VI16 low = hn::InterleaveLower(I16(), of_a, of_b), high = hn::InterleaveUpper(I16(), of_a, of_b);
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    std::int32_t pair;
    std::memcpy(&pair, words + h * kEntryBlock, sizeof(pair));
    const VI16 w = hn::BitCast(I16(), hn::Set(I32(), pair));
    added[h][0] = add_pairs(added[h][0], low, w);
    added[h][1] = add_pairs(added[h][1], high, w);
  }
}

// Adds kWords columns of the values, weighted, to kHeads heads' sums [kHeads][sums_stride].
//   words, factors: those of the first head; row: the first row at these columns
template <class Row, int kHalf, int kHeads>
HWY_INLINE void add_block_of_words(const std::int16_t* HWY_RESTRICT words, const float* HWY_RESTRICT factors,
                                   const std::byte* row, std::size_t stride, std::int32_t n, Ahead& ahead,
                                   float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const F d;
  Ahead own = ahead;  // in registers
  for (std::int32_t left = n; left > 0; left -= kAdded) {
    VI32 added[kHeads][2];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) added[h][0] = added[h][1] = hn::Zero(I32());
    std::int32_t i = 0;
    for (const std::int32_t most = std::min(left, kAdded); i < most; i += 4) {
      own.fetch();
      const std::int32_t n_here = most - i;
      add_two_rows<Row, kHalf>(words + i, row, n_here > 1 ? row + stride : row, added);
      if (n_here > 2) {
        row += 2 * stride;
        add_two_rows<Row, kHalf>(words + i + 2, row, n_here > 3 ? row + stride : row, added);
      }
      row += 2 * stride;
    }
    words += kAdded;
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      // Interleaving worked within the halves of a vector.
      const VF factor = hn::Set(d, factors[h]);
      const VF low = hn::ConvertTo(d, hn::ConcatLowerLower(I32(), added[h][1], added[h][0]));
      const VF high = hn::ConvertTo(d, hn::ConcatUpperUpper(I32(), added[h][1], added[h][0]));
      float* to = sums + static_cast<std::size_t>(h) * sums_stride;
      hn::StoreU(hn::MulAdd(low, factor, hn::LoadU(d, to)), d, to);
      hn::StoreU(hn::MulAdd(high, factor, hn::LoadU(d, to + kLanes)), d, to + kLanes);
    }
  }
  ahead = own;
}

template <class Row>
void add_words(const float* weights, const WordWeights& packed, int n_group, int head_dim, const Rows& values,
               std::int32_t n, Ahead& ahead, float* sums) {
  pack_word_weights<Row>(weights, n_group, values.scales, n, head_dim / Row::kScaleBlock, packed);
  const auto sums_stride = static_cast<std::size_t>(head_dim);
  ahead.spread(values.stored_bytes, n_head_passes(n_group) * (head_dim / kWords) * ((n + 3) / 4));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    float* to = sums + static_cast<std::size_t>(h) * sums_stride;
    for (int block = 0; block < head_dim / Row::kScaleBlock; ++block) {
      const std::int16_t* words = packed.words + (block * n_group + h) * kEntryBlock;
      const float* factors = packed.factors + block * n_group + h;
      const std::byte* row = values.data + block * Row::kBlockBytes + 2;
      for (int unit = 0; unit < kBlockUnits<Row>; ++unit, row += kUnitBytes<Row>, to += kUnitWords) {
        add_block_of_words<Row, 0, kHeads>(words, factors, row, values.stride, n, ahead, to, sums_stride);
        add_block_of_words<Row, 1, kHeads>(words, factors, row, values.stride, n, ahead, to + kWords, sums_stride);
      }
    }
  });
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
