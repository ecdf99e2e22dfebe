// One query row of a group against a slice of entries: bound by memory, so every key and value is read once for all
// query heads and converted in registers.
#include "kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode_attention.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/exp-inl.h"
#include "kernels/load-inl.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Entries of a run whose scores and weights are worked on together.
inline constexpr std::int32_t kEntryBlock = 64;
inline constexpr int kMaxGroup = 16;

// Query heads that a pass over a block handles: 4 entries x 4 heads (or 4 heads x 4 vectors) of sums in registers.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kHeads = 4;
inline constexpr int kValueVecs = 4;
#else
inline constexpr int kHeads = 2;
inline constexpr int kValueVecs = 4;
#endif

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(VF a, VF b, VF c, VF e, float* out) {
  out[0] = a.raw;
  out[1] = b.raw;
  out[2] = c.raw;
  out[3] = e.raw;
}
#else
// Adds up the blocks of four lanes.
template <class D, class V = hn::Vec<D> >
HWY_INLINE auto fold_to_four(D d, V v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    (void)d;
    return v;
  } else {
    const hn::Half<D> half;
    return fold_to_four(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Stores the sums of the lanes of each of four vectors.
HWY_INLINE void store_sums(VF a, VF b, VF c, VF e, float* out) {
  const F d;
  const hn::RepartitionToWide<F> wide;
  const auto ab = hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(wide, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const VF sums =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, ab, ce)), hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce)));
  hn::Store(fold_to_four(d, sums), hn::CappedTag<float, 4>(), out);
}
#endif

// scores [kN][kEntryBlock] of n keys (rows of `stride` bytes) for queries [kN][head_dim]. What is about to be needed
// next (the block's values) is fetched meanwhile: pages are too short for the processor to see a stream in them.
template <class Row, int kN>
HWY_INLINE void score_block(const float* HWY_RESTRICT queries, int head_dim, const std::byte* HWY_RESTRICT keys,
                            std::size_t stride, std::int32_t n, const std::byte* fetch, std::size_t fetch_bytes,
                            float* HWY_RESTRICT scores) {
  const std::size_t fetch_step = fetch_bytes * 4 / static_cast<std::size_t>(n);
  for (std::int32_t i = 0; i < n; i += 4) {
    const std::byte* k[4];
    for (std::int32_t j = 0; j < 4; ++j) k[j] = keys + static_cast<std::size_t>(std::min(i + j, n - 1)) * stride;
    if (fetch) {
      const std::byte* from = fetch + static_cast<std::size_t>(i / 4) * fetch_step;
      for (std::size_t at = 0; at < fetch_step; at += 64) hwy::Prefetch(from + at);
    }
    VF sums[kN][4];
#pragma GCC unroll 8
    for (int h = 0; h < kN; ++h) {
#pragma GCC unroll 8
      for (int j = 0; j < 4; ++j) sums[h][j] = hn::Zero(F());
    }
    for (int c = 0; c < head_dim; c += kLanes) {
      VF key[4];
#pragma GCC unroll 8
      for (int j = 0; j < 4; ++j) key[j] = Row::load(k[j], c);
#pragma GCC unroll 8
      for (int h = 0; h < kN; ++h) {
        const VF q = hn::Load(F(), queries + h * head_dim + c);
#pragma GCC unroll 8
        for (int j = 0; j < 4; ++j) sums[h][j] = hn::MulAdd(q, key[j], sums[h][j]);
      }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kN; ++h) {
      store_sums(sums[h][0], sums[h][1], sums[h][2], sums[h][3], scores + h * kEntryBlock + i);
    }
  }
}

// Adds the values, weighted, to kVecs vectors of kN heads' sums [kN][sums_stride].
template <class Row, int kN, int kVecs>
HWY_INLINE void add_block(const float* HWY_RESTRICT weights, const std::byte* HWY_RESTRICT values, std::size_t stride,
                          std::int32_t n, int column, const std::byte* fetch, std::size_t fetch_step,
                          float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const F d;
  VF acc[kN][kVecs];
#pragma GCC unroll 8
  for (int h = 0; h < kN; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[h][v] = hn::LoadU(d, sums + static_cast<std::size_t>(h) * sums_stride + column + v * kLanes);
    }
  }
  for (std::int32_t i = 0; i < n; ++i, values += stride) {
    if (fetch) {
      for (std::size_t at = 0; at < fetch_step; at += 64) hwy::Prefetch(fetch + at);
      fetch += fetch_step;
    }
    VF value[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) value[v] = Row::load(values, column + v * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < kN; ++h) {
      const VF w = hn::Set(d, weights[h * kEntryBlock + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[h][v] = hn::MulAdd(w, value[v], acc[h][v]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kN; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      hn::StoreU(acc[h][v], d, sums + static_cast<std::size_t>(h) * sums_stride + column + v * kLanes);
    }
  }
}

// Calls f with the smallest of the constants 1, 2, ... kMax that is `n`.
template <int kMax, class Function>
HWY_INLINE void with_constant(int n, const Function& f) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_constant<kMax - 1>(n, f);
  }
  f(std::integral_constant<int, kMax>());
}

template <class Row>
void score_heads(const float* queries, int n_group, int head_dim, const std::byte* keys, std::size_t stride,
                 std::int32_t n, const std::byte* fetch, std::size_t fetch_bytes, float* scores) {
  for (int h = 0; h < n_group; h += kHeads) {
    with_constant<kHeads>(std::min(kHeads, n_group - h), [&](auto heads) HWY_ATTR {
      score_block<Row, decltype(heads)::value>(queries + h * head_dim, head_dim, keys, stride, n,
                                               h == 0 ? fetch : nullptr, fetch_bytes, scores + h * kEntryBlock);
    });
  }
}

template <class Row>
void add_heads(const float* weights, int n_group, int head_dim, const std::byte* values, std::size_t stride,
               std::int32_t n, const std::byte* fetch, std::size_t fetch_bytes, float* sums, std::size_t sums_stride) {
  const std::size_t fetch_step = fetch_bytes / static_cast<std::size_t>(n);
  for (int c = 0; c < head_dim; c += kValueVecs * kLanes) {
    const int n_vecs = std::min(kValueVecs, (head_dim - c) / kLanes);
    for (int h = 0; h < n_group; h += kHeads) {
      with_constant<kHeads>(std::min(kHeads, n_group - h), [&](auto heads) HWY_ATTR {
        with_constant<kValueVecs>(n_vecs, [&](auto vecs) HWY_ATTR {
          add_block<Row, decltype(heads)::value, decltype(vecs)::value>(
              weights + h * kEntryBlock, values, stride, n, c, h == 0 && c == 0 ? fetch : nullptr, fetch_step,
              sums + static_cast<std::size_t>(h) * sums_stride, sums_stride);
        });
      });
    }
  }
}

// Rows of a block type go through a float32 copy of the block; the plain types are read where they are.
HWY_INLINE bool is_blocked(EntryType type) { return type == EntryType::kQ8_0 || type == EntryType::kQ4_0; }

HWY_INLINE const std::byte* expand_block(EntryType type, const std::byte* rows, std::size_t stride, std::int32_t n,
                                         int head_dim, float* out) {
  for (std::int32_t i = 0; i < n; ++i, rows += stride) expand_row(type, rows, out + i * head_dim, head_dim);
  return reinterpret_cast<const std::byte*>(out);
}

// The scores of one head's block become weights exp(score - maximum); the head's partial is brought to the new maximum.
HWY_INLINE void soften_block(float* scores, std::int32_t n, float* partial, int head_dim) {
  const F d;
  const std::int32_t end = round_up(n, kLanes);
  std::fill(scores + n, scores + end, -HUGE_VALF);
  VF high = hn::Load(d, scores);
  for (std::int32_t i = kLanes; i < end; i += kLanes) high = hn::Max(high, hn::Load(d, scores + i));
  const float old_high = partial[0];
  const float new_high = std::max(old_high, std::min(hn::GetLane(hn::MaxOfLanes(d, high)), FLT_MAX));
  const VF base = hn::Set(d, new_high == -HUGE_VALF ? 0.0F : new_high);
  const VF log2_e = hn::Set(d, kLog2E);
  VF total = hn::Zero(d);
  for (std::int32_t i = 0; i < end; i += kLanes) {
    const VF w = exp2_of_negative(d, hn::Mul(hn::Sub(hn::Load(d, scores + i), base), log2_e));
    hn::Store(w, d, scores + i);
    total = hn::Add(total, w);
  }
  const float sum = hn::GetLane(hn::SumOfLanes(d, total));
  if (new_high == old_high) {
    partial[1] += sum;
    return;
  }
  const float rescale = std::exp(old_high - new_high);
  partial[0] = new_high;
  partial[1] = partial[1] * rescale + sum;
  const VF factor = hn::Set(d, rescale);
  for (int i = 0; i < head_dim; i += kLanes) {
    hn::StoreU(hn::Mul(factor, hn::LoadU(d, partial + 2 + i)), d, partial + 2 + i);
  }
}

template <class Function>
HWY_INLINE void with_row_type(EntryType type, const Function& f) {
  if (type == EntryType::kF16) return f(F16Row());
  if (type == EntryType::kBF16) return f(BF16Row());
  f(F32Row());  // also what expand_block made
}

void decode_attention(const AttentionShape& shape, const DecodeSlice& slice, float* partials) {
  const int d = shape.head_dim;
  const int n_group = shape.n_group;
  const std::size_t partial_stride = partial_floats(d);
  for (int g = 0; g < n_group; ++g) {
    float* partial = partials + static_cast<std::size_t>(g) * partial_stride;
    partial[0] = -HUGE_VALF;
    std::fill_n(partial + 1, partial_stride - 1, 0.0F);
  }
  WindowBound bound(slice.entries, shape.sliding_window);
  const std::int32_t first = std::max(slice.first, bound.first_visible(slice.position));
  if (first >= slice.last) return;

  alignas(64) float queries[kMaxGroup * kMaxHeadDim];
  for (int i = 0; i < n_group * d; ++i) queries[i] = slice.q[i] * shape.scale;
  alignas(64) float scores[kMaxGroup * kEntryBlock];
  alignas(64) float expanded[kEntryBlock * kMaxHeadDim];

  const std::size_t key_bytes = row_bytes(shape.key_type, d);
  const std::size_t value_bytes = row_bytes(shape.value_type, d);
  RunCursor cursor(slice.entries);
  RunCursor::Piece piece = cursor.seek(first);
  for (std::int32_t at = first; at < slice.last;) {
    const std::int32_t n = std::min({kEntryBlock, piece.count, slice.last - at});
    const std::byte* keys = piece.run->keys + static_cast<std::size_t>(piece.offset) * key_bytes;
    const std::byte* values = piece.run->values + static_cast<std::size_t>(piece.offset) * value_bytes;
    const std::size_t values_size = static_cast<std::size_t>(n) * value_bytes;
    std::size_t key_stride = key_bytes;
    const std::byte* key_rows = keys;
    if (is_blocked(shape.key_type)) {
      key_rows = expand_block(shape.key_type, keys, key_bytes, n, d, expanded);
      key_stride = static_cast<std::size_t>(d) * sizeof(float);
    }
    with_row_type(shape.key_type, [&](auto row) HWY_ATTR {
      score_heads<decltype(row)>(queries, n_group, d, key_rows, key_stride, n, values, values_size, scores);
    });
    for (int g = 0; g < n_group; ++g) {
      soften_block(scores + g * kEntryBlock, n, partials + static_cast<std::size_t>(g) * partial_stride, d);
    }

    at += n;
    const std::byte* next_keys = nullptr;
    std::size_t next_size = 0;
    if (at < slice.last) {
      piece = cursor.seek(at);
      next_keys = piece.run->keys + static_cast<std::size_t>(piece.offset) * key_bytes;
      next_size = static_cast<std::size_t>(std::min({kEntryBlock, piece.count, slice.last - at})) * key_bytes;
    }
    std::size_t value_stride = value_bytes;
    const std::byte* value_rows = values;
    if (is_blocked(shape.value_type)) {
      value_rows = expand_block(shape.value_type, values, value_bytes, n, d, expanded);
      value_stride = static_cast<std::size_t>(d) * sizeof(float);
    }
    with_row_type(shape.value_type, [&](auto row) HWY_ATTR {
      add_heads<decltype(row)>(scores, n_group, d, value_rows, value_stride, n, next_keys, next_size, partials + 2,
                               partial_stride);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(decode_attention);

void decode_attention(const AttentionShape& shape, const DecodeSlice& slice, float* partials) {
  assert(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim && shape.n_group <= 16);
  HWY_DYNAMIC_DISPATCH(decode_attention)(shape, slice, partials);
}

void merge_partials(const AttentionShape& shape, const float* partials, int n_slices, float* out) {
  const std::size_t stride = partial_floats(shape.head_dim);
  const auto n_group = static_cast<std::size_t>(shape.n_group);
  for (std::size_t g = 0; g < n_group; ++g, out += shape.head_dim) {
    const auto partial = [&](int slice) { return partials + (static_cast<std::size_t>(slice) * n_group + g) * stride; };
    float high = -HUGE_VALF;
    for (int s = 0; s < n_slices; ++s) high = std::max(high, partial(s)[0]);
    std::fill_n(out, shape.head_dim, 0.0F);
    float sum = 0.0F;
    for (int s = 0; s < n_slices; ++s) {
      const float* p = partial(s);
      if (p[1] == 0.0F) continue;  // empty: its maximum is -inf, and so may be `high`
      const float weight = std::exp(p[0] - high);
      sum += weight * p[1];
      for (int i = 0; i < shape.head_dim; ++i) out[i] += weight * p[2 + i];
    }
    if (sum > 0.0F) {
      for (int i = 0; i < shape.head_dim; ++i) out[i] /= sum;
    }
  }
}

}  // namespace winnow::kernels
#endif
