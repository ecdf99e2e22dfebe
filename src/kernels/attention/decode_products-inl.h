// The products of a decoding step in float32: queries with a piece's keys, weights with its values.
#if defined(WINNOW_KERNELS_DECODE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_DECODE_PRODUCTS_INL_H_
#undef WINNOW_KERNELS_DECODE_PRODUCTS_INL_H_
#else
#define WINNOW_KERNELS_DECODE_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/entries/load-inl.h"
#include "kernels/simd/read_ahead.h"
#include "kernels/simd/tiling.h"
#include "winnow/entries.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of query heads that one pass over a block handles: their sums and a row's numbers fit in the registers
// (AVX-512 and Arm have 32, others 16). Half as many heads leave room for twice as many keys or vectors of values. Each
// number of heads is compiled on its own; no processor that people use takes the code without vectors.
#if HWY_TARGET == HWY_SCALAR
inline constexpr int kMaxHeads = 1;
#elif HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kMaxHeads = 8;
#else
inline constexpr int kMaxHeads = 4;
#endif
constexpr int keys_at_a_time(int n_heads) { return n_heads > kMaxHeads / 2 ? 2 : 4; }
constexpr int vecs_at_a_time(int n_heads) { return n_heads > kMaxHeads / 2 ? 2 : 4; }

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(VF a, VF b, VF c, VF e, float* out) {
  out[0] = a.raw;
  out[1] = b.raw;
  out[2] = c.raw;
  out[3] = e.raw;
}
#else
// Returns the sum of a vector's blocks of four lanes.
template <class D, class V>
HWY_INLINE auto fold_to_four(D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    (void)d;
    return v;
  } else {
    const hn::Half<D> half;
    return fold_to_four(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Stores the sum of the lanes of each of four vectors.
HWY_INLINE void store_sums(VF a, VF b, VF c, VF e, float* out) {
  const F d;
  const hn::RepartitionToWide<F> wide;
  const auto ab = hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const VF sums =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce)));
  hn::StoreU(fold_to_four(d, sums), hn::CappedTag<float, 4>(), out);
}
#endif

template <class Row>
inline constexpr bool kHasScales = requires {
  Row::kScaleBlock;
};

// Returns the number of vectors of which the columns of such rows are always a multiple, at most `most`.
template <class Row>
constexpr int column_vecs(int most) {
  int columns = kHeadDimUnit;
  if constexpr (kHasScales<Row>) columns = Row::kScaleBlock;
  return std::clamp(columns / kLanes, 1, most);
}

// The rows of a block as they are read: as stored, or expanded.
struct Rows {
  const std::byte* data;
  std::size_t stride;        // bytes
  std::size_t stored_bytes;  // bytes of all rows as they are stored
  const float* scales;       // for block-quantised types: [blocks of a row][kEntryBlock]
};

// Loads the scales of all rows at once: loading them one by one and repeatedly takes longer than loading the numbers,
// and so does a gather.
template <class Row>
HWY_INLINE void load_scales(const std::byte* rows, std::size_t stride, std::int32_t n, int head_dim,
                            float* HWY_RESTRICT scales) {
  const F d;
  const hn::Rebind<hwy::float16_t, F> half;
  const int n_blocks = head_dim / Row::kScaleBlock;
  alignas(64) std::uint16_t bits[kMaxHeadDim / Row::kScaleBlock][kEntryBlock];
  for (int block = 0; block < n_blocks; ++block) {
    const std::byte* from = rows + block * Row::kBlockBytes;
#pragma GCC unroll 8
    for (std::int32_t i = 0; i < n; ++i, from += stride) std::memcpy(bits[block] + i, from, sizeof(**bits));
    for (std::int32_t i = n; i < round_up(n, kLanes); ++i) bits[block][i] = 0;
  }
  for (int block = 0; block < n_blocks; ++block, scales += kEntryBlock) {
    for (std::int32_t i = 0; i < n; i += kLanes) {
      const auto* from = reinterpret_cast<const hwy::float16_t*>(bits[block] + i);
      hn::Store(hn::PromoteTo(d, hn::Load(half, from)), d, scales + i);
    }
  }
}

// Keeps a vector that is used several times in a register: gcc otherwise reads it from memory each time, and loads
// limit the products.
HWY_INLINE void keep_in_register(VF& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

// Points k to keys [i, i + kKeys), repeating the last one beyond the end, and sets their sums to zero.
template <int kHeads, int kKeys>
HWY_INLINE void begin_scores(const Rows& keys, std::int32_t i, std::int32_t n, const std::byte* (&k)[kKeys],
                             VF (&sums)[kHeads][kKeys]) {
  for (std::int32_t j = 0; j < kKeys; ++j) {
    k[j] = keys.data + static_cast<std::size_t>(std::min(i + j, n - 1)) * keys.stride;
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j) sums[h][j] = hn::Zero(F());
  }
}

// Stores the sums of the lanes as scores [kHeads][kEntryBlock] of keys [i, i + kKeys).
template <int kHeads, int kKeys>
HWY_INLINE void store_scores(const VF (&sums)[kHeads][kKeys], std::int32_t i, float* HWY_RESTRICT scores) {
  if constexpr (kKeys == 4) {
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      store_sums(sums[h][0], sums[h][1], sums[h][2], sums[h][3], scores + h * kEntryBlock + i);
    }
  } else {
    alignas(16) float pairs[4];  // of two heads
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; h += 2) {
      const int other = std::min(h + 1, kHeads - 1);
      store_sums(sums[h][0], sums[h][1], sums[other][0], sums[other][1], pairs);
      std::memcpy(scores + h * kEntryBlock + i, pairs, 2 * sizeof(float));
      std::memcpy(scores + other * kEntryBlock + i, pairs + 2, 2 * sizeof(float));
    }
  }
}

// Writes the scores [kHeads][kEntryBlock] of n keys for queries [kHeads][head_dim].
template <class Row, int kHeads>
HWY_INLINE void score_block(const float* HWY_RESTRICT queries, int head_dim, const Rows& keys, std::int32_t n,
                            Ahead& ahead, float* HWY_RESTRICT scores) {
  constexpr int kKeys = keys_at_a_time(kHeads);
  for (std::int32_t i = 0; i < n; i += kKeys) {
    ahead.fetch();
    const std::byte* k[kKeys];
    VF sums[kHeads][kKeys];
    begin_scores(keys, i, n, k, sums);
    for (int unit = 0; unit < head_dim; unit += Row::kUnit) {
#pragma GCC unroll 4
      for (int offset = 0; offset < Row::kUnit; offset += kLanes) {
        const int c = unit + offset;
        VF key[kKeys];
#pragma GCC unroll 8
        for (int j = 0; j < kKeys; ++j) {
          if constexpr (kHasScales<Row>) {
            // Scales beyond the last row do not matter.
            const float scale = keys.scales[unit / Row::kScaleBlock * kEntryBlock + i + j];
            key[j] = hn::Mul(Row::raw(k[j], unit, offset), hn::Set(F(), scale));
          } else {
            key[j] = Row::load(k[j], c);
          }
        }
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          VF q = hn::Load(F(), queries + h * head_dim + c);
          keep_in_register(q);
#pragma GCC unroll 8
          for (int j = 0; j < kKeys; ++j) sums[h][j] = hn::MulAdd(q, key[j], sums[h][j]);
        }
      }
    }
    store_scores(sums, i, scores);
  }
}

// The softmax weights [n_group][kEntryBlock] of a block of entries; for block-quantised types, times the values'
// scales, one set for each block of a row.
struct BlockWeights {
  const float* data;
  int set_size;  // floats
};

// Adds the weighted values to kVecs vectors of kHeads heads' sums [kHeads][sums_stride].
template <class Row, int kHeads, int kVecs>
HWY_INLINE void add_block(const BlockWeights& weights, const Rows& values, std::int32_t n, int column, Ahead& ahead,
                          float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const F d;
  VF acc[kHeads][kVecs];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[h][v] = hn::LoadU(d, sums + static_cast<std::size_t>(h) * sums_stride + column + v * kLanes);
    }
  }
  const std::byte* row = values.data;
  const float* weight = weights.data;
  if constexpr (kHasScales<Row>) weight += column / Row::kScaleBlock * weights.set_size;
  for (std::int32_t i = 0; i < n; ++i, row += values.stride, ++weight) {
    ahead.fetch();
    VF value[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      if constexpr (kHasScales<Row>) {
        // Columns begin at a unit if a unit fits.
        constexpr int kUnit = Row::kUnit;
        const int offset = kVecs * kLanes % kUnit == 0 ? v * kLanes % kUnit : (column + v * kLanes) % kUnit;
        value[v] = Row::raw(row, column + v * kLanes - offset, offset);
      } else {
        value[v] = Row::load(row, column + v * kLanes);
      }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        // Columns begin at a block's begin, or lie within one block.
        int set = 0;
        if constexpr (kHasScales<Row>) set = v * kLanes / Row::kScaleBlock;
        const VF w = hn::Set(d, weight[set * weights.set_size + h * kEntryBlock]);
        acc[h][v] = hn::MulAdd(w, value[v], acc[h][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      hn::StoreU(acc[h][v], d, sums + static_cast<std::size_t>(h) * sums_stride + column + v * kLanes);
    }
  }
}

// Calls f with n, one of kStep, 2 kStep, ... kMax, as a constant.
template <int kMax, int kStep = 1, class Function>
HWY_INLINE void with_constant(int n, const Function& f) {
  if constexpr (kMax > kStep) {
    if (n < kMax) return with_constant<kMax - kStep, kStep>(n, f);
  }
  f(std::integral_constant<int, kMax>());
}

// Returns the number of passes of about equal size that n_group heads are split into.
constexpr int n_head_passes(int n_group, int most = kMaxHeads) { return (n_group + most - 1) / most; }

// Calls f(first head, constant number of heads) for every pass.
template <int kMost = kMaxHeads, class Function>
HWY_INLINE void with_head_passes(int n_group, const Function& f) {
  const int n_passes = n_head_passes(n_group, kMost);
  for (int pass = 0, h = 0; pass < n_passes; ++pass) {
    const int n = (n_group - h) / (n_passes - pass);
    with_constant<kMost>(n, [&](auto heads) HWY_ATTR { f(h, heads); });
    h += n;
  }
}

// Scores a block of keys for all heads, pass by pass.
template <class Row>
void score_heads(const float* queries, int n_group, int head_dim, const Rows& keys, std::int32_t n, Ahead& ahead,
                 float* scores) {
  constexpr int kMost = std::max(1, kMaxHeads / 2);
  const int n_passes = n_head_passes(n_group, kMost);
  ahead.spread(keys.stored_bytes, n_passes * std::max(1, n / keys_at_a_time(n_group / n_passes)));
  with_head_passes<kMost>(n_group, [&](int h, auto heads) HWY_ATTR {
    score_block<Row, decltype(heads)::value>(queries + h * head_dim, head_dim, keys, n, ahead,
                                             scores + h * kEntryBlock);
  });
}

// Adds a block's weighted values to all heads' sums, pass by pass.
template <class Row>
void add_heads(const BlockWeights& weights, int n_group, int head_dim, const Rows& values, std::int32_t n, Ahead& ahead,
               float* sums, std::size_t sums_stride) {
  const int n_passes = n_head_passes(n_group);
  ahead.spread(values.stored_bytes, n_passes * n * std::max(1, head_dim / kLanes / vecs_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    constexpr int kVecs = vecs_at_a_time(kHeads);
    const BlockWeights of_heads = {weights.data + h * kEntryBlock, weights.set_size};
    for (int c = 0; c < head_dim; c += kVecs * kLanes) {
      const int n_vecs = std::min(kVecs, (head_dim - c) / kLanes);
      with_constant<kVecs, column_vecs<Row>(kVecs)>(n_vecs, [&](auto vecs) HWY_ATTR {
        add_block<Row, kHeads, decltype(vecs)::value>(of_heads, values, n, c, ahead,
                                                      sums + static_cast<std::size_t>(h) * sums_stride, sums_stride);
      });
    }
  });
}

// Writes weights [n_group][kEntryBlock] times the scales of n rows to scaled [blocks of a row][n_group][kEntryBlock].
HWY_INLINE void scale_weights(const float* HWY_RESTRICT weights, int n_group, const float* HWY_RESTRICT scales,
                              std::int32_t n, int n_blocks, float* HWY_RESTRICT scaled) {
  const F d;
  for (int block = 0; block < n_blocks; ++block, scales += kEntryBlock) {
    for (int g = 0; g < n_group; ++g, scaled += kEntryBlock) {
      for (std::int32_t i = 0; i < n; i += kLanes) {
        hn::Store(hn::Mul(hn::LoadU(d, weights + g * kEntryBlock + i), hn::Load(d, scales + i)), d, scaled + i);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif
