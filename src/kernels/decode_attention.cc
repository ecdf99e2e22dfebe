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
#include <cstring>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/exp-inl.h"
#include "kernels/load-inl.h"
#include "kernels/rotated_codes.h"
#include "kernels/run_cursor.h"
#include "kernels/tiling.h"

#ifndef WINNOW_KERNELS_DECODE_ATTENTION_ONCE_
#define WINNOW_KERNELS_DECODE_ATTENTION_ONCE_
namespace winnow::kernels {
// Room for a scale of each 32 numbers of a block of rows.
constexpr std::size_t scale_floats(int head_dim) {
  return static_cast<std::size_t>((head_dim + 31) / 32) * static_cast<std::size_t>(kEntryBlock);
}
}  // namespace winnow::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Query heads that a pass over a block handles: their sums and a row's numbers fit the registers (AVX-512 and Arm have
// 32, the others 16). Half as many heads leave room for twice as many keys or vectors of values.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
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
// Adds up the blocks of four lanes.
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

// Rows that will be needed next, fetched a few lines at a time while others are worked on: pages are too short for the
// processor to see a stream in them. They go to the second-level cache, since many at once would fill the first level's
// few buffers for lines on their way.
class Ahead {
 public:
  Ahead(const std::byte* data, std::size_t bytes) : next_(data), end_(data + bytes) {}

  // Spreads what is left over n_steps calls of fetch.
  void spread(std::int32_t n_steps) {
    const auto left = static_cast<std::size_t>(end_ - next_);
    lines_ = (left / 64 + static_cast<std::size_t>(n_steps)) / static_cast<std::size_t>(n_steps);
  }

  HWY_INLINE void fetch() {
    for (std::size_t line = 0; line < lines_ && next_ < end_; ++line, next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
  std::size_t lines_ = 0;  // per step
};

template <class Row>
inline constexpr bool kHasScales = requires {
  Row::kScaleBlock;
};

// n rows as they are read: as they are stored, or expanded.
struct Rows {
  const std::byte* data;
  std::size_t stride;   // bytes
  const float* scales;  // of types in blocks: [blocks of a row][kEntryBlock]
};

// The scales of all rows at once: one by one, and as often as they are needed, they take longer than the numbers. (So
// does gathering them.)
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

// scores [kHeads][kEntryBlock] of n keys for queries [kHeads][head_dim].
template <class Row, int kHeads>
HWY_INLINE void score_block(const float* HWY_RESTRICT queries, int head_dim, const Rows& keys, std::int32_t n,
                            Ahead& ahead, float* HWY_RESTRICT scores) {
  constexpr int kKeys = keys_at_a_time(kHeads);
  for (std::int32_t i = 0; i < n; i += kKeys) {
    ahead.fetch();
    const std::byte* k[kKeys];
    for (std::int32_t j = 0; j < kKeys; ++j) {
      k[j] = keys.data + static_cast<std::size_t>(std::min(i + j, n - 1)) * keys.stride;
    }
    VF sums[kHeads][kKeys];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) sums[h][j] = hn::Zero(F());
    }
    for (int unit = 0; unit < head_dim; unit += Row::kUnit) {
#pragma GCC unroll 4
      for (int offset = 0; offset < Row::kUnit; offset += kLanes) {
        const int c = unit + offset;
        VF key[kKeys];
#pragma GCC unroll 8
        for (int j = 0; j < kKeys; ++j) {
          if constexpr (kHasScales<Row>) {
            // Behind the last row they are of no consequence.
            const float scale = keys.scales[unit / Row::kScaleBlock * kEntryBlock + i + j];
            key[j] = hn::Mul(Row::raw(k[j], unit, offset), hn::Set(F(), scale));
          } else {
            key[j] = Row::load(k[j], c);
          }
        }
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          const VF q = hn::Load(F(), queries + h * head_dim + c);
#pragma GCC unroll 8
          for (int j = 0; j < kKeys; ++j) sums[h][j] = hn::MulAdd(q, key[j], sums[h][j]);
        }
      }
    }
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
}

// [n_group][kEntryBlock] weights of a block of entries; those of types in blocks times the values' scales, one set for
// each block of a row.
struct BlockWeights {
  const float* data;
  int set_size;  // floats
};

// Adds the values, weighted, to kVecs vectors of kHeads heads' sums [kHeads][sums_stride].
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
        // Columns begin with a unit where a unit fits.
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
        // Columns begin with a block, or lie in one.
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

// Calls f with the smallest of the constants 1, 2, ... kMax that is `n`.
template <int kMax, class Function>
HWY_INLINE void with_constant(int n, const Function& f) {
  if constexpr (kMax > 1) {
    if (n < kMax) return with_constant<kMax - 1>(n, f);
  }
  f(std::integral_constant<int, kMax>());
}

// n_group heads go in passes of about equal size.
constexpr int n_head_passes(int n_group) { return (n_group + kMaxHeads - 1) / kMaxHeads; }

// Calls f(first head, constant number of heads) for every pass.
template <class Function>
HWY_INLINE void with_head_passes(int n_group, const Function& f) {
  const int n_passes = n_head_passes(n_group);
  for (int pass = 0, h = 0; pass < n_passes; ++pass) {
    const int n = (n_group - h) / (n_passes - pass);
    with_constant<kMaxHeads>(n, [&](auto heads) HWY_ATTR { f(h, heads); });
    h += n;
  }
}

template <class Row>
void score_heads(const float* queries, int n_group, int head_dim, const Rows& keys, std::int32_t n, Ahead& ahead,
                 float* scores) {
  const int n_passes = n_head_passes(n_group);
  ahead.spread(n_passes * std::max(1, n / keys_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    score_block<Row, decltype(heads)::value>(queries + h * head_dim, head_dim, keys, n, ahead,
                                             scores + h * kEntryBlock);
  });
}

template <class Row>
void add_heads(const BlockWeights& weights, int n_group, int head_dim, const Rows& values, std::int32_t n, Ahead& ahead,
               float* sums, std::size_t sums_stride) {
  const int n_passes = n_head_passes(n_group);
  ahead.spread(n_passes * n * std::max(1, head_dim / kLanes / vecs_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    constexpr int kVecs = vecs_at_a_time(kHeads);
    const BlockWeights of_heads = {weights.data + h * kEntryBlock, weights.set_size};
    for (int c = 0; c < head_dim; c += kVecs * kLanes) {
      with_constant<kVecs>(std::min(kVecs, (head_dim - c) / kLanes), [&](auto vecs) HWY_ATTR {
        add_block<Row, kHeads, decltype(vecs)::value>(of_heads, values, n, c, ahead,
                                                      sums + static_cast<std::size_t>(h) * sums_stride, sums_stride);
      });
    }
  });
}

// weights [n_group][kEntryBlock] times the scales of n rows -> scaled [blocks of a row][n_group][kEntryBlock]
HWY_INLINE void scale_weights(const float* HWY_RESTRICT weights, int n_group, const float* HWY_RESTRICT scales,
                              std::int32_t n, int n_blocks, float* HWY_RESTRICT scaled) {
  const F d;
  for (int block = 0; block < n_blocks; ++block, scales += kEntryBlock) {
    for (int g = 0; g < n_group; ++g, scaled += kEntryBlock) {
      for (std::int32_t i = 0; i < n; i += kLanes) {
        hn::Store(hn::Mul(hn::Load(d, weights + g * kEntryBlock + i), hn::Load(d, scales + i)), d, scaled + i);
      }
    }
  }
}

// The scores of one head's block become weights exp(score - maximum); the head's state and its sums of values are
// brought to the new maximum.
HWY_INLINE void soften_block(float* scores, std::int32_t n, SoftmaxState& state, float* values, int value_dim) {
  const F d;
  const std::int32_t end = round_up(n, kLanes);
  std::fill(scores + n, scores + end, -HUGE_VALF);
  VF high = hn::Load(d, scores);
  for (std::int32_t i = kLanes; i < end; i += kLanes) high = hn::Max(high, hn::Load(d, scores + i));
  const float old_high = state.max;
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
    state.sum += sum;
    return;
  }
  const float rescale = std::exp(old_high - new_high);
  state = {.max = new_high, .sum = state.sum * rescale + sum};
  const VF factor = hn::Set(d, rescale);
  for (int i = 0; i < value_dim; i += kLanes) {
    hn::StoreU(hn::Mul(factor, hn::LoadU(d, values + i)), d, values + i);
  }
}

// Rows whose codes are not read in registers: they are expanded, a block of entries at a time.
HWY_INLINE bool is_expanded(EntryType type, int head_dim) {
  return type == EntryType::kR3 || (type == EntryType::kR4 && code_block(head_dim) < kCodeGroup);
}

template <class Function>
HWY_INLINE void with_row_type(EntryType type, int head_dim, const Function& f) {
  switch (type) {
    case EntryType::kF32:
      return f(F32Row());
    case EntryType::kF16:
      return f(F16Row());
    case EntryType::kBF16:
      return f(BF16Row());
    case EntryType::kQ8_0:
      return f(Q8Row());
    case EntryType::kQ4_0:
      return f(Q4Row());
    case EntryType::kR4:
      if (code_block(head_dim) == 32) return f(R4Row<32>());
      if (code_block(head_dim) == 64) return f(R4Row<64>());
      if (code_block(head_dim) == 128) return f(R4Row<128>());
      return f(F32Row());
    case EntryType::kR3:
      return f(F32Row());
  }
}

// Rows as with_row_type's readers take them: expanded into `space` [n][head_dim] where they are read so, and with their
// scales in `scales`.
template <class Row>
HWY_INLINE Rows readable_rows(EntryType type, int head_dim, const std::byte* rows, std::size_t stride, std::int32_t n,
                              float* space, float* scales) {
  if (is_expanded(type, head_dim)) {
    for (std::int32_t i = 0; i < n; ++i, rows += stride) load_rotated_row(type, rows, space + i * head_dim, head_dim);
    return {reinterpret_cast<const std::byte*>(space), static_cast<std::size_t>(head_dim) * sizeof(float), nullptr};
  }
  if constexpr (kHasScales<Row>) load_scales<Row>(rows, stride, n, head_dim, scales);
  return {rows, stride, scales};
}

// Bytes of a head's rows.
class RowSizes {
 public:
  explicit RowSizes(const AttentionShape& shape) {
    for (const bool is_plain : {false, true}) {
      const EntryRun run{nullptr, nullptr, nullptr, 0, is_plain};
      keys_[is_plain] = row_bytes(row_type(shape, run, RowKind::kKey), shape.key_dim);
      values_[is_plain] = row_bytes(row_type(shape, run, RowKind::kValue), shape.value_dim);
    }
  }
  std::size_t key(const EntryRun& run) const { return keys_[run.is_plain]; }
  std::size_t value(const EntryRun& run) const { return values_[run.is_plain]; }

 private:
  std::size_t keys_[2], values_[2];
};

// Entries that lie one after the other.
struct EntryBlock {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  std::size_t key_bytes = 0, value_bytes = 0;  // of a row
  std::int32_t n_entries = 0;
  EntryType key_type = EntryType::kF32, value_type = EntryType::kF32;
};

void decode_attention(const AttentionShape& shape, const DecodeSlice& slice, const GroupSoftmax& out,
                      std::span<std::byte> memory) {
  const int d = shape.key_dim;
  const int value_dim = shape.value_dim;
  const int n_group = shape.n_group;
  std::fill(out.states.begin(), out.states.end(), SoftmaxState{});
  std::fill_n(out.values, n_group * value_dim, 0.0F);
  WindowBound bound(slice.entries, shape.spec.window);
  const std::int32_t first = std::max(slice.first, bound.first_visible(slice.position));
  if (first >= slice.last) return;

  Scratch scratch(memory);
  auto* queries = scratch.take<float>(static_cast<std::size_t>(n_group * d));
  for (int i = 0; i < n_group * d; ++i) queries[i] = slice.q[i] * shape.spec.scale;
  // Codes are read as they lie, rotated: so are the queries and the sums meanwhile. A rotation undoes itself.
  bool are_queries_rotated = false, are_sums_rotated = false;
  const auto set_rotation = [n_group](bool& is_rotated, EntryType type, float* rows, int n) {
    if (is_rotated == (code_bits(type) > 0)) return;
    for (int g = 0; g < n_group; ++g) rotate_row(rows + g * n, rows + g * n, n);
    is_rotated = !is_rotated;
  };
  auto* scores = scratch.take<float>(static_cast<std::size_t>(n_group * kEntryBlock));
  auto* expanded = scratch.take<float>(static_cast<std::size_t>(kEntryBlock * std::max(d, value_dim)));

  auto* scales = scratch.take<float>(scale_floats(std::max(d, value_dim)));
  auto* scaled = scratch.take<float>(static_cast<std::size_t>(n_group) * scale_floats(value_dim));

  const RowSizes sizes(shape);
  RunCursor cursor(slice.entries);
  const auto block_at = [&](std::int32_t at) -> EntryBlock {
    if (at >= slice.last) return {};
    const RunCursor::Piece piece = cursor.seek(at);
    const std::size_t key_bytes = sizes.key(*piece.run), value_bytes = sizes.value(*piece.run);
    const auto offset = static_cast<std::size_t>(piece.offset);
    return {.keys = piece.run->keys + offset * key_bytes,
            .values = piece.run->values + offset * value_bytes,
            .key_bytes = key_bytes,
            .value_bytes = value_bytes,
            .n_entries = std::min({kEntryBlock, piece.count, slice.last - at}),
            .key_type = row_type(shape, *piece.run, RowKind::kKey),
            .value_type = row_type(shape, *piece.run, RowKind::kValue)};
  };
  EntryBlock block = block_at(first);
  for (std::int32_t at = first; at < slice.last;) {
    const std::int32_t n = block.n_entries;
    at += n;
    const EntryBlock next = block_at(at);
    const auto n_next = static_cast<std::size_t>(next.n_entries);
    Ahead next_keys(next.keys, n_next * next.key_bytes);
    Ahead next_values(next.values, n_next * next.value_bytes);

    set_rotation(are_queries_rotated, block.key_type, queries, d);
    with_row_type(block.key_type, d, [&](auto row) HWY_ATTR {
      using Row = decltype(row);
      const Rows keys = readable_rows<Row>(block.key_type, d, block.keys, block.key_bytes, n, expanded, scales);
      score_heads<Row>(queries, n_group, d, keys, n, next_keys, scores);
    });
    if (shape.spec.soft_cap != 0) {
      for (int g = 0; g < n_group; ++g) {
        soft_cap_scores(F(), scores + g * kEntryBlock, round_up(n, kLanes), shape.spec.soft_cap);
      }
    }
    for (int g = 0; g < n_group; ++g) {
      soften_block(scores + g * kEntryBlock, n, out.states[static_cast<std::size_t>(g)], out.values + g * value_dim,
                   value_dim);
    }
    set_rotation(are_sums_rotated, block.value_type, out.values, value_dim);
    with_row_type(block.value_type, value_dim, [&](auto row) HWY_ATTR {
      using Row = decltype(row);
      const Rows values =
          readable_rows<Row>(block.value_type, value_dim, block.values, block.value_bytes, n, expanded, scales);
      BlockWeights weights{scores, n_group * kEntryBlock};
      if constexpr (kHasScales<Row>) {
        scale_weights(scores, n_group, scales, n, value_dim / Row::kScaleBlock, scaled);
        weights.data = scaled;
      }
      add_heads<Row>(weights, n_group, value_dim, values, n, next_values, out.values,
                     static_cast<std::size_t>(value_dim));
    });
    block = next;
  }
  set_rotation(are_sums_rotated, EntryType::kF32, out.values, value_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

std::size_t decode_attention_scratch_bytes(const AttentionShape& shape) {
  const auto n_group = static_cast<std::size_t>(shape.n_group);
  return Scratch::bytes<float>(n_group * static_cast<std::size_t>(shape.key_dim)) +
         Scratch::bytes<float>(n_group * kEntryBlock) +
         Scratch::bytes<float>(kEntryBlock * static_cast<std::size_t>(std::max(shape.key_dim, shape.value_dim))) +
         Scratch::bytes<float>(scale_floats(std::max(shape.key_dim, shape.value_dim))) +
         Scratch::bytes<float>(n_group * scale_floats(shape.value_dim));
}

HWY_EXPORT(decode_attention);

void decode_attention(const AttentionShape& shape, const DecodeSlice& slice, const GroupSoftmax& out,
                      std::span<std::byte> scratch) {
  assert(shape.is_supported());
  assert(scratch.size() >= decode_attention_scratch_bytes(shape));
  HWY_DYNAMIC_DISPATCH(decode_attention)(shape, slice, out, scratch);
}

void merge(const AttentionShape& shape, const GroupSoftmax& into, const GroupSoftmax& from) {
  float* sums = into.values;
  const float* others = from.values;
  for (std::size_t g = 0; g < into.states.size(); ++g, sums += shape.value_dim, others += shape.value_dim) {
    const MergeFactors factors = merge(into.states[g], from.states[g]);
    if (factors.from == 0.0F) continue;
    for (int i = 0; i < shape.value_dim; ++i) sums[i] = sums[i] * factors.into + others[i] * factors.from;
  }
}

void finish_attention(const AttentionShape& shape, const GroupSoftmax& state, float* out) {
  const float* sums = state.values;
  for (std::size_t g = 0; g < state.states.size(); ++g, out += shape.value_dim, sums += shape.value_dim) {
    SoftmaxState& softmax = state.states[g];
    float factor = softmax.is_empty() ? 0.0F : 1.0F;
    if (shape.spec.sinks != nullptr) factor *= merge(softmax, SoftmaxState::of(shape.spec.sinks[g])).into;
    if (factor != 0.0F) factor /= softmax.sum;
    for (int i = 0; i < shape.value_dim; ++i) out[i] = sums[i] * factor;
  }
}

}  // namespace winnow::kernels
#endif
