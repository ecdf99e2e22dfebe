// Attention of one query row of a group to slices of entries. It is bound by memory, so every key and value is read
// once for all query heads and converted in registers.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/decode_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/attention/attention.h"
#include "kernels/attention/code_products.h"
#include "kernels/attention/decode_products-inl.h"
#include "kernels/attention/decode_words-inl.h"
#include "kernels/entries/load-inl.h"
#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/exp-inl.h"
#include "kernels/simd/read_ahead.h"
#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Turns the scores of one head's block, to which `shift` has yet to be added, into weights exp(score - maximum), and
// rescales the head's state and its sums of values to the new maximum.
HWY_INLINE void soften_block(float* scores, std::int32_t n, float shift, SoftmaxState& state, float* values,
                             int value_dim) {
  const F d;
  const std::int32_t end = round_up(n, kLanes);
  std::fill(scores + n, scores + end, -HUGE_VALF);
  VF high = hn::Load(d, scores);
  for (std::int32_t i = kLanes; i < end; i += kLanes) high = hn::Max(high, hn::Load(d, scores + i));
  const float old_high = state.max;
  const float new_high = std::max(old_high, std::min(hn::GetLane(hn::MaxOfLanes(d, high)) + shift, FLT_MAX));
  const VF base = hn::Set(d, new_high == -HUGE_VALF ? 0.0F : new_high - shift);
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
  if (old_high == -HUGE_VALF) {  // no values yet
    state = {.max = new_high, .sum = sum};
    return;
  }
  const float rescale = std::exp(old_high - new_high);
  state = {.max = new_high, .sum = state.sum * rescale + sum};
  const VF factor = hn::Set(d, rescale);
  for (int i = 0; i < value_dim; i += kLanes) {
    hn::StoreU(hn::Mul(factor, hn::LoadU(d, values + i)), d, values + i);
  }
}

// Returns true for rows whose codes are not dequantised in registers: they are expanded, a block of entries at a time.
HWY_INLINE bool is_expanded(EntryType type, int head_dim) {
  return code_bits(type) > 0 && code_block(head_dim) < kCodeGroup;
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
      if (!with_coded_row<R4Row>(head_dim, f)) f(F32Row());
      return;
    case EntryType::kR3:
      if (!with_coded_row<R3Row>(head_dim, f)) f(F32Row());
      return;
  }
}

// Returns rows as with_row_type's readers take them: expanded into `space` [n][head_dim] if they are read expanded, and
// with their scales in `scales`.
template <class Row>
HWY_INLINE Rows readable_rows(EntryType type, int head_dim, const std::byte* rows, std::size_t stride, std::int32_t n,
                              float* space, float* scales) {
  const std::size_t bytes = static_cast<std::size_t>(n) * stride;
  if (is_expanded(type, head_dim)) {
    for (std::int32_t i = 0; i < n; ++i, rows += stride) load_rotated_row(type, rows, space + i * head_dim, head_dim);
    return {reinterpret_cast<const std::byte*>(space), static_cast<std::size_t>(head_dim) * sizeof(float), bytes,
            nullptr};
  }
  if constexpr (kHasScales<Row>) load_scales<Row>(rows, stride, n, head_dim, scales);
  return {rows, stride, bytes, scales};
}

// Returns how many bytes ahead of their use entries are prefetched. Fewer do not cover the values of a block of
// quantised entries, whose lines are all read at once. With more, a part has left the first-level cache again; the
// second-level cache has room for two blocks (Zen 4: decoding over q8_0 then takes 0.75 of the time, over r4 0.9).
HWY_INLINE std::size_t fetched_bytes() { return fetches_to_first_level() ? 12288 : 24576; }

// The size of rows, most of which have the type of the previous one.
class RowSize {
 public:
  explicit RowSize(int n) : n_(n) {}
  std::size_t of(EntryType type) {
    if (type != type_ || bytes_ == 0) bytes_ = row_bytes(type_ = type, n_);
    return bytes_;
  }

 private:
  int n_;
  EntryType type_ = EntryType::kF32;
  std::size_t bytes_ = 0;
};

// Entries that are contiguous in memory.
struct EntryPiece {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  std::size_t key_bytes = 0, value_bytes = 0;  // of a row
  std::int32_t n_entries = 0;
  EntryType key_type = EntryType::kF32, value_type = EntryType::kF32;
  const std::byte* origin = nullptr;  // of the keys
};

// Entries whose softmax is computed together: maxima and sums across vectors take as long for one page as for several.
struct EntryBlock {
  static constexpr int kMaxPieces = 4;
  EntryPiece pieces[kMaxPieces];
  int n_pieces = 0;
  std::int32_t n_entries = 0;

  // Returns the common origin of all its keys; null if they have none or different ones.
  const std::byte* origin() const {
    const auto differs = [&](const EntryPiece& piece) { return piece.origin != pieces[0].origin; };
    return std::any_of(pieces, pieces + n_pieces, differs) ? nullptr : pieces[0].origin;
  }

  // Adds the block's rows in the order in which they are read.
  void add_to(ReadOrder& order) const {
    const std::span all(pieces, static_cast<std::size_t>(n_pieces));
    for (const EntryPiece& p : all) order.add(p.keys, static_cast<std::size_t>(p.n_entries) * p.key_bytes);
    for (const EntryPiece& p : all) order.add(p.values, static_cast<std::size_t>(p.n_entries) * p.value_bytes);
  }
};

// The types whose rows are multiplied as codes (code_products.h). It is determined once, since pieces are short.
class CodedTypes {
 public:
  explicit CodedTypes(int head_dim) {
    for (const EntryType type : kCodeProductTypes) {
      if (has_code_products(type, head_dim)) types_ |= bit(type);
    }
  }
  bool contain(EntryType type) const { return (types_ & bit(type)) != 0; }

 private:
  static constexpr unsigned bit(EntryType type) { return 1U << static_cast<unsigned>(type); }

  unsigned types_ = 0;
};

// Pieces of a block whose values are added together, since the fixed cost of an addition is the same for one page.
struct CodedValues {
  CodedRows pieces[EntryBlock::kMaxPieces];
  std::size_t n = 0;
  std::int32_t n_entries = 0;

  // Takes as many of the pieces p, p + 1, ... of a block as possible.
  CodedValues(const EntryBlock& block, int p) {
    const EntryType type = block.pieces[p].value_type;
    for (; p < block.n_pieces && block.pieces[p].value_type == type && n_entries % 4 == 0; ++p) {
      const EntryPiece& piece = block.pieces[p];
      pieces[n++] = {piece.values, piece.value_bytes, piece.n_entries};
      n_entries += piece.n_entries;
    }
  }
};

// Rotates the sums, or reverts that. Quantised values are added as they are stored, rotated, so their sums are rotated,
// too. The Hadamard rotation is its own inverse. Sums that are all zero count as both rotated and unrotated.
HWY_INLINE void set_rotation(const GroupSoftmax& sums, bool are_rotated, int n_group, int value_dim) {
  if (*sums.are_rotated == are_rotated) return;
  for (float* row = sums.values; row < sums.values + n_group * value_dim; row += value_dim) {
    rotate_row(row, row, value_dim);
  }
  *sums.are_rotated = are_rotated;
}

// A group's queries in the forms that the products take: each form is made when the first entries need it.
class Queries {
 public:
  Queries(const AttentionShape& shape, const float* q, Scratch& scratch)
      : n_group_(shape.n_group), dim_(shape.key_dim) {
    const auto n_heads = static_cast<std::size_t>(n_group_), n = static_cast<std::size_t>(n_group_ * dim_);
    for (Form* form : {&plain_, &rotated_}) {
      form->numbers = scratch.take<float>(n);
      form->words = {.words = scratch.take<std::int16_t>(n), .factors = scratch.take<float>(n_heads)};
    }
    for (Coded& coded : coded_) coded.queries = scratch.take<std::byte>(coded_queries_bytes(n_group_, dim_));
    for (std::size_t i = 0; i < n; ++i) plain_.numbers[i] = q[i] * shape.spec.scale;
  }
  static std::size_t scratch_bytes(const AttentionShape& shape) {
    const auto n_heads = static_cast<std::size_t>(shape.n_group), n = n_heads * static_cast<std::size_t>(shape.key_dim);
    return 2 * (Scratch::bytes<float>(n) + Scratch::bytes<std::int16_t>(n) + Scratch::bytes<float>(n_heads)) +
           std::size(kCodeProductTypes) * Scratch::bytes<std::byte>(coded_queries_bytes(shape.n_group, shape.key_dim));
  }

  // Returns the queries for score_codes, for a type that it supports.
  const std::byte* coded(EntryType type) {
    Coded& coded = coded_[std::ranges::find(kCodeProductTypes, type) - kCodeProductTypes];
    if (!coded.is_packed) pack_coded_queries(type, numbers(type), n_group_, dim_, coded.queries);
    coded.is_packed = true;
    return coded.queries;
  }
  // Returns the queries [n_group][key_dim], rotated if a type's rows are.
  const float* numbers(EntryType type) { return form_of(type).numbers; }
  WordQueries& words(EntryType type) { return form_of(type).words; }

 private:
  struct Form {
    float* numbers;
    WordQueries words;
  };
  struct Coded {
    std::byte* queries = nullptr;
    bool is_packed = false;
  };

  Form& form_of(EntryType type) {
    if (code_bits(type) == 0) return plain_;
    for (int i = 0; i < n_group_ * dim_ && !is_rotated_; i += dim_) {
      rotate_row(plain_.numbers + i, rotated_.numbers + i, dim_);
    }
    is_rotated_ = true;
    return rotated_;
  }

  int n_group_, dim_;
  bool is_rotated_ = false;
  Form plain_, rotated_;
  Coded coded_[std::size(kCodeProductTypes)];  // one a type
};

// The part that is missing in scores of keys that are stored minus their head's origin: q.origin, one number per query
// head.
class OriginScores {
 public:
  // queries: [n_group][dim], times the softmax scale
  OriginScores(const float* queries, int n_group, int dim) : queries_(queries), n_group_(n_group), dim_(dim) {}

  // Returns the numbers [n_group] for the keys of a run with this origin.
  HWY_INLINE const float* of(const std::byte* origin) {
    if (origin == loaded_) return scores_;
    const F d;
    alignas(64) float numbers[kMaxHeadDim];
    expand_row(EntryType::kF16, loaded_ = origin, numbers, dim_);
    for (int g = 0; g < n_group_; ++g) {
      VF sum = hn::Zero(d);
      for (int c = 0; c < dim_; c += kLanes) {
        sum = hn::MulAdd(hn::LoadU(d, queries_ + g * dim_ + c), hn::Load(d, numbers + c), sum);
      }
      scores_[g] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
    return scores_;
  }

 private:
  const float* queries_;
  int n_group_, dim_;
  const std::byte* loaded_ = nullptr;
  float scores_[kMaxGroup] = {};
};

// The memory with which a block of entries is scored and added.
struct BlockScratch {
  BlockScratch(const AttentionShape& shape, Scratch& scratch)
      : scores(scratch.take<float>(n_scores(shape))),
        expanded(scratch.take<float>(n_expanded(shape))),
        scales(scratch.take<float>(n_scales(shape))),
        scaled(scratch.take<float>(n_scaled(shape))),
        factors(scratch.take<float>(n_factors(shape))) {}

  static std::size_t bytes(const AttentionShape& shape) {
    return Scratch::bytes<float>(n_scores(shape)) + Scratch::bytes<float>(n_expanded(shape)) +
           Scratch::bytes<float>(n_scales(shape)) + Scratch::bytes<float>(n_scaled(shape)) +
           Scratch::bytes<float>(n_factors(shape));
  }

  float* scores;    // [n_group][kEntryBlock]
  float* expanded;  // [kEntryBlock][larger head size] rows of keys, then of values, in float32
  float* scales;    // of those rows
  float* scaled;    // weights times the values' scales, or the same in 16 bits
  float* factors;   // [n_group] for each block of scales, of weights in 16 bits

 private:
  static std::size_t n_queries(const AttentionShape& shape) { return static_cast<std::size_t>(shape.n_group); }
  static std::size_t n_scores(const AttentionShape& shape) { return n_queries(shape) * kEntryBlock; }
  static std::size_t n_expanded(const AttentionShape& shape) {
    return kEntryBlock * static_cast<std::size_t>(std::max(shape.key_dim, shape.value_dim));
  }
  static std::size_t n_scales(const AttentionShape& shape) {
    return scale_floats(std::max(shape.key_dim, shape.value_dim));
  }
  static std::size_t n_scaled(const AttentionShape& shape) { return n_queries(shape) * scale_floats(shape.value_dim); }
  static std::size_t n_factors(const AttentionShape& shape) { return n_queries(shape) * scale_blocks(shape.value_dim); }
};

void decode_attention(const AttentionShape& shape, const DecodeSlices& slices, const GroupSoftmax& out,
                      std::span<std::byte> memory) {
  const int d = shape.key_dim;
  const int value_dim = shape.value_dim;
  const int n_group = shape.n_group;
  const std::int32_t n_slices = slices.count();
  std::fill(out.states.begin(), out.states.end(), SoftmaxState{});
  std::fill_n(out.values, n_slices * n_group * value_dim, 0.0F);
  std::fill_n(out.are_rotated, n_slices, false);
  WindowBound bound(slices.entries, shape.spec.sliding_window);
  const std::int32_t first = std::max(slices.first, bound.first_visible(slices.position));
  if (first >= slices.last) return;

  Scratch scratch(memory);
  const CodedTypes coded_keys(d), coded_values(value_dim);
  Queries queries(shape, slices.q, scratch);
  OriginScores origin_scores(queries.numbers(EntryType::kF32), n_group, d);
  const BlockScratch of_block(shape, scratch);
  float *const scores = of_block.scores, *const expanded = of_block.expanded, *const scales = of_block.scales;
  const WordWeights word_weights{.words = reinterpret_cast<std::int16_t*>(of_block.scaled),
                                 .factors = of_block.factors};

  RowSize key_size(d), value_size(value_dim);
  RunCursor cursor(slices.entries);
  const auto piece_at = [&](std::int32_t at, std::int32_t n_most) -> EntryPiece {
    const RunCursor::Piece piece = cursor.seek(at);
    const std::size_t key_bytes = key_size.of(piece.run->key_type);
    const std::size_t value_bytes = value_size.of(piece.run->value_type);
    const auto offset = static_cast<std::size_t>(piece.offset);
    return {.keys = piece.run->keys + offset * key_bytes,
            .values = piece.run->values + offset * value_bytes,
            .key_bytes = key_bytes,
            .value_bytes = value_bytes,
            .n_entries = std::min(n_most, piece.count),
            .key_type = piece.run->key_type,
            .value_type = piece.run->value_type,
            .origin = piece.run->origin};
  };
  const auto slice_of = [&slices](std::int32_t at) { return (at - slices.first) / slices.size; };
  // Returns a block of one slice. After the last slice it returns the next slice's block, on which mostly the same
  // thread works, so that its beginning is prefetched.
  const auto block_at = [&](std::int32_t at) {
    const std::int32_t most = at < slices.last ? slices.last : slices.entries.n_entries;
    const std::int32_t last = std::min(most, slices.first + (slice_of(at) + 1) * slices.size);
    EntryBlock found;
    while (found.n_pieces < EntryBlock::kMaxPieces && found.n_entries < kEntryBlock && at < last) {
      EntryPiece& piece = found.pieces[found.n_pieces++];
      piece = piece_at(at, std::min(kEntryBlock - found.n_entries, last - at));
      found.n_entries += piece.n_entries;
      at += piece.n_entries;
    }
    return found;
  };
  EntryBlock block = block_at(first);
  ReadOrder order;
  block.add_to(order);
  Ahead ahead(order);
  ahead.spread(fetched_bytes(), 1);
  ahead.fetch();
  for (std::int32_t at = first; at < slices.last;) {
    const GroupSoftmax slice = out.slice(slice_of(at), n_group, value_dim);
    at += block.n_entries;
    const EntryBlock next = block_at(at);
    next.add_to(order);

    float* of_piece = scores;
    for (int p = 0; p < block.n_pieces; ++p) {
      const EntryPiece& piece = block.pieces[p];
      if (coded_keys.contain(piece.key_type)) {
        score_codes(piece.key_type, queries.coded(piece.key_type), n_group, d,
                    {piece.keys, piece.key_bytes, piece.n_entries}, ahead, of_piece);
        of_piece += piece.n_entries;
        continue;
      }
      const float* numbers = queries.numbers(piece.key_type);
      with_row_type(piece.key_type, d, [&](auto row) HWY_ATTR {
        using Row = decltype(row);
        const Rows keys =
            readable_rows<Row>(piece.key_type, d, piece.keys, piece.key_bytes, piece.n_entries, expanded, scales);
        if constexpr (kHasWordProducts && kHasScales<Row>) {
          score_words<Row>(numbers, queries.words(piece.key_type), n_group, d, keys, piece.n_entries, ahead, of_piece);
        } else {
          score_heads<Row>(numbers, n_group, d, keys, piece.n_entries, ahead, of_piece);
        }
      });
      of_piece += piece.n_entries;
    }
    // A block whose keys all have the same origin is shifted as a whole.
    const std::byte* origin = shape.spec.soft_cap == 0 ? block.origin() : nullptr;
    const float* shifts = origin == nullptr ? nullptr : origin_scores.of(origin);
    of_piece = scores;
    for (int p = 0; p < block.n_pieces && origin == nullptr; of_piece += block.pieces[p++].n_entries) {
      if (block.pieces[p].origin == nullptr) continue;
      const float* lacking = origin_scores.of(block.pieces[p].origin);
      for (int g = 0; g < n_group; ++g) {
        float* of_head = of_piece + g * kEntryBlock;
        for (std::int32_t i = 0; i < block.pieces[p].n_entries; ++i) of_head[i] += lacking[g];
      }
    }
    if (shape.spec.soft_cap != 0) {
      for (int g = 0; g < n_group; ++g) {
        soft_cap_scores(F(), scores + g * kEntryBlock, round_up(block.n_entries, kLanes), shape.spec.soft_cap);
      }
    }
    for (int g = 0; g < n_group; ++g) {
      soften_block(scores + g * kEntryBlock, block.n_entries, shifts == nullptr ? 0.0F : shifts[g],
                   slice.states[static_cast<std::size_t>(g)], slice.values + g * value_dim, value_dim);
    }
    of_piece = scores;
    for (int p = 0; p < block.n_pieces; ++p) {
      const EntryPiece& piece = block.pieces[p];
      set_rotation(slice, code_bits(piece.value_type) > 0, n_group, value_dim);
      if (coded_values.contain(piece.value_type)) {
        const CodedValues values(block, p);
        add_codes(piece.value_type, of_piece, n_group, value_dim, {values.pieces, values.n}, ahead, slice.values);
        of_piece += values.n_entries;
        p += static_cast<int>(values.n) - 1;
        continue;
      }
      with_row_type(piece.value_type, value_dim, [&](auto row) HWY_ATTR {
        using Row = decltype(row);
        const Rows values = readable_rows<Row>(piece.value_type, value_dim, piece.values, piece.value_bytes,
                                               piece.n_entries, expanded, scales);
        if constexpr (kHasWordProducts && kHasScales<Row>) {
          add_words<Row>(of_piece, word_weights, n_group, value_dim, values, piece.n_entries, ahead, slice.values);
        } else {
          BlockWeights weights{of_piece, n_group * kEntryBlock};
          if constexpr (kHasScales<Row>) {
            scale_weights(of_piece, n_group, scales, piece.n_entries, value_dim / Row::kScaleBlock, of_block.scaled);
            weights.data = of_block.scaled;
          }
          add_heads<Row>(weights, n_group, value_dim, values, piece.n_entries, ahead, slice.values,
                         static_cast<std::size_t>(value_dim));
        }
      });
      of_piece += piece.n_entries;
    }
    block = next;
  }
}

void merge(const AttentionShape& shape, const GroupSoftmax& into, const GroupSoftmax& from) {
  const F d;
  if (*into.are_rotated != *from.are_rotated) {
    set_rotation(into, false, shape.n_group, shape.value_dim);
    set_rotation(from, false, shape.n_group, shape.value_dim);
  }
  float* sums = into.values;
  const float* others = from.values;
  for (std::size_t g = 0; g < into.states.size(); ++g, sums += shape.value_dim, others += shape.value_dim) {
    const MergeFactors factors = merge(into.states[g], from.states[g]);
    if (factors.from == 0.0F) continue;
    const VF of_sums = hn::Set(d, factors.into), of_others = hn::Set(d, factors.from);
    for (int i = 0; i < shape.value_dim; i += kLanes) {
      const VF other = hn::Mul(of_others, hn::LoadU(d, others + i));
      hn::StoreU(hn::MulAdd(of_sums, hn::LoadU(d, sums + i), other), d, sums + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

std::size_t decode_attention_scratch_bytes(const AttentionShape& shape) {
  return HWY_STATIC_DISPATCH(Queries)::scratch_bytes(shape) + HWY_STATIC_DISPATCH(BlockScratch)::bytes(shape);
}

HWY_EXPORT(decode_attention);
HWY_EXPORT(merge);

void decode_attention(const AttentionShape& shape, const DecodeSlices& slices, const GroupSoftmax& out,
                      std::span<std::byte> scratch) {
  assert(shape.is_supported());
  assert(scratch.size() >= decode_attention_scratch_bytes(shape));
  assert(std::ssize(out.states) == slices.count() * shape.n_group);
  HWY_DYNAMIC_DISPATCH(decode_attention)(shape, slices, out, scratch);
}

void merge(const AttentionShape& shape, const GroupSoftmax& into, const GroupSoftmax& from) {
  HWY_DYNAMIC_DISPATCH(merge)(shape, into, from);
}

void finish_attention(const AttentionShape& shape, const GroupSoftmax& state, float* out) {
  const float* sums = state.values;
  for (std::size_t g = 0; g < state.states.size(); ++g, out += shape.value_dim, sums += shape.value_dim) {
    SoftmaxState& softmax = state.states[g];
    float factor = softmax.is_empty() ? 0.0F : 1.0F;
    if (shape.spec.sink_logits != nullptr) factor *= merge(softmax, SoftmaxState::of(shape.spec.sink_logits[g])).into;
    if (factor != 0.0F) factor /= softmax.sum;
    for (int i = 0; i < shape.value_dim; ++i) out[i] = sums[i] * factor;
    if (*state.are_rotated) rotate_row(out, out, shape.value_dim);
  }
}

}  // namespace winnow::kernels
#endif
