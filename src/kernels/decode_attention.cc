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

// scores [kHeads][kEntryBlock] of n keys (rows of `stride` bytes) for queries [kHeads][head_dim].
template <class Row, int kHeads>
HWY_INLINE void score_block(const float* HWY_RESTRICT queries, int head_dim, const std::byte* HWY_RESTRICT keys,
                            std::size_t stride, std::int32_t n, Ahead& ahead, float* HWY_RESTRICT scores) {
  constexpr int kKeys = keys_at_a_time(kHeads);
  for (std::int32_t i = 0; i < n; i += kKeys) {
    ahead.fetch();
    const std::byte* k[kKeys];
    for (std::int32_t j = 0; j < kKeys; ++j) k[j] = keys + static_cast<std::size_t>(std::min(i + j, n - 1)) * stride;
    VF sums[kHeads][kKeys];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) sums[h][j] = hn::Zero(F());
    }
    for (int unit = 0; unit < head_dim; unit += Row::kUnit) {
#pragma GCC unroll 4
      for (int c = unit; c < unit + Row::kUnit; c += kLanes) {
        VF key[kKeys];
#pragma GCC unroll 8
        for (int j = 0; j < kKeys; ++j) key[j] = Row::load(k[j], c);
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

// Adds the values, weighted, to kVecs vectors of kHeads heads' sums [kHeads][sums_stride].
template <class Row, int kHeads, int kVecs>
HWY_INLINE void add_block(const float* HWY_RESTRICT weights, const std::byte* HWY_RESTRICT values, std::size_t stride,
                          std::int32_t n, int column, Ahead& ahead, float* HWY_RESTRICT sums, std::size_t sums_stride) {
  const F d;
  VF acc[kHeads][kVecs];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[h][v] = hn::LoadU(d, sums + static_cast<std::size_t>(h) * sums_stride + column + v * kLanes);
    }
  }
  for (std::int32_t i = 0; i < n; ++i, values += stride) {
    ahead.fetch();
    VF value[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) value[v] = Row::load(values, column + v * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const VF w = hn::Set(d, weights[h * kEntryBlock + i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[h][v] = hn::MulAdd(w, value[v], acc[h][v]);
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
void score_heads(const float* queries, int n_group, int head_dim, const std::byte* keys, std::size_t stride,
                 std::int32_t n, Ahead& ahead, float* scores) {
  const int n_passes = n_head_passes(n_group);
  ahead.spread(n_passes * std::max(1, n / keys_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    score_block<Row, decltype(heads)::value>(queries + h * head_dim, head_dim, keys, stride, n, ahead,
                                             scores + h * kEntryBlock);
  });
}

template <class Row>
void add_heads(const float* weights, int n_group, int head_dim, const std::byte* values, std::size_t stride,
               std::int32_t n, Ahead& ahead, float* sums, std::size_t sums_stride) {
  const int n_passes = n_head_passes(n_group);
  ahead.spread(n_passes * n * std::max(1, head_dim / kLanes / vecs_at_a_time(n_group / n_passes)));
  with_head_passes(n_group, [&](int h, auto heads) HWY_ATTR {
    constexpr int kHeads = decltype(heads)::value;
    constexpr int kVecs = vecs_at_a_time(kHeads);
    for (int c = 0; c < head_dim; c += kVecs * kLanes) {
      with_constant<kVecs>(std::min(kVecs, (head_dim - c) / kLanes), [&](auto vecs) HWY_ATTR {
        add_block<Row, kHeads, decltype(vecs)::value>(weights + h * kEntryBlock, values, stride, n, c, ahead,
                                                      sums + static_cast<std::size_t>(h) * sums_stride, sums_stride);
      });
    }
  });
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

// n rows as with_row_type's readers take them: as they are stored, or expanded into `space` [n][head_dim].
struct ReadableRows {
  const std::byte* data;
  std::size_t stride;  // bytes
};
HWY_INLINE ReadableRows readable_rows(EntryType type, int head_dim, const std::byte* rows, std::size_t stride,
                                      std::int32_t n, float* space) {
  if (!is_expanded(type, head_dim)) return {rows, stride};
  for (std::int32_t i = 0; i < n; ++i, rows += stride) load_rotated_row(type, rows, space + i * head_dim, head_dim);
  return {reinterpret_cast<const std::byte*>(space), static_cast<std::size_t>(head_dim) * sizeof(float)};
}

// Entries that lie one after the other.
struct EntryBlock {
  const std::byte* keys;
  const std::byte* values;
  std::int32_t n_entries;
  EntryType key_type, value_type;
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

  RunCursor cursor(slice.entries);
  const auto block_at = [&](std::int32_t at) -> EntryBlock {
    if (at >= slice.last) return {nullptr, nullptr, 0, shape.key_type, shape.value_type};
    const RunCursor::Piece piece = cursor.seek(at);
    return {row_at(shape, *piece.run, RowKind::kKey, piece.offset),
            row_at(shape, *piece.run, RowKind::kValue, piece.offset),
            std::min({kEntryBlock, piece.count, slice.last - at}), row_type(shape, *piece.run, RowKind::kKey),
            row_type(shape, *piece.run, RowKind::kValue)};
  };
  EntryBlock block = block_at(first);
  for (std::int32_t at = first; at < slice.last;) {
    const std::int32_t n = block.n_entries;
    at += n;
    const EntryBlock next = block_at(at);
    const auto n_next = static_cast<std::size_t>(next.n_entries);
    Ahead next_keys(next.keys, n_next * row_bytes(next.key_type, d));
    Ahead next_values(next.values, n_next * row_bytes(next.value_type, value_dim));

    set_rotation(are_queries_rotated, block.key_type, queries, d);
    with_row_type(block.key_type, d, [&](auto row) HWY_ATTR {
      const ReadableRows keys = readable_rows(block.key_type, d, block.keys, row_bytes(block.key_type, d), n, expanded);
      score_heads<decltype(row)>(queries, n_group, d, keys.data, keys.stride, n, next_keys, scores);
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
      const ReadableRows values =
          readable_rows(block.value_type, value_dim, block.values, row_bytes(block.value_type, value_dim), n, expanded);
      add_heads<decltype(row)>(scores, n_group, value_dim, values.data, values.stride, n, next_values, out.values,
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
         Scratch::bytes<float>(kEntryBlock * static_cast<std::size_t>(std::max(shape.key_dim, shape.value_dim)));
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
