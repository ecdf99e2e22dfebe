// Views of the stored entries of one (layer, KV head), as every attention and scoring kernel reads them.
//
// A head's entries are a list of contiguous runs. A page of the cache is a run; the staging buffer of a prefill is one
// long run; kernels need not know which it is. Positions ascend, except in heads whose best entries are stored in more
// bits than the others (RaggedCache::entries). Kernels rely on the order only in layers with a sliding window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "winnow/entry_type.h"

namespace winnow::kernels {

// The limits of the kernels: a model beyond them is refused when it is loaded.
inline constexpr int kMaxGroup = 128;    // query heads per KV head
inline constexpr int kMaxHeadDim = 512;  // numbers of a row; rows of this size lie on the stack
inline constexpr int kHeadDimUnit = 16;  // head sizes are multiples of it

// Returns the type in which rows are stored until they are quantised to `type`: f16, or `type` itself if it is a float.
constexpr EntryType plain_type(EntryType type) {
  const bool is_plain = type == EntryType::kF32 || type == EntryType::kF16 || type == EntryType::kBF16;
  return is_plain ? type : EntryType::kF16;
}

// Returns true for a quantised type, whose rows are codes with scales.
constexpr bool is_coded(EntryType type) { return plain_type(type) != type; }

// The bytes of a stored entry's position.
inline constexpr std::size_t kPositionBytes = sizeof(std::uint16_t);

// Returns the bytes of an entry: its two rows and its position. Layer is any type with a key_dim and a value_dim.
template <class Layer>
std::size_t entry_bytes(const Layer& layer, EntryType key_type, EntryType value_type) {
  return row_bytes(key_type, layer.key_dim) + row_bytes(value_type, layer.value_dim) + kPositionBytes;
}

// A view of the original positions of a run's entries, ascending: an array of positions, or of 16-bit offsets from an
// origin.
class EntryPositions {
 public:
  EntryPositions() = default;
  EntryPositions(const std::int32_t* positions) : positions_(positions) {}
  EntryPositions(std::int32_t origin, const std::uint16_t* offsets) : offsets_(offsets), origin_(origin) {}

  std::int32_t operator[](std::int32_t i) const {
    return positions_ != nullptr ? positions_[i] : origin_ + std::int32_t{offsets_[i]};
  }
  // Returns the positions from entry i on.
  EntryPositions from(std::int32_t i) const {
    return positions_ != nullptr ? EntryPositions(positions_ + i) : EntryPositions(origin_, offsets_ + i);
  }
  // Returns the number of positions below `bound` among the first n, by binary search.
  std::int32_t count_below(std::int32_t bound, std::int32_t n) const {
    std::int32_t first = 0;
    for (std::int32_t last = n; first < last;) {
      const std::int32_t middle = first + (last - first) / 2;
      if ((*this)[middle] < bound) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
  // Appends the first n positions to `positions`.
  void append_to(std::vector<std::int32_t>& positions, std::int32_t n) const {
    for (std::int32_t i = 0; i < n; ++i) positions.push_back((*this)[i]);
  }

 private:
  const std::int32_t* positions_ = nullptr;
  const std::uint16_t* offsets_ = nullptr;
  std::int32_t origin_ = 0;
};

// A view of contiguous entries of one KV head.
struct EntryRun {
  const std::byte* keys;     // [n_entries][key_dim], rows packed; rotated by the original position, less `origin`
  const std::byte* values;   // [n_entries][value_dim], rows packed
  EntryPositions positions;  // [n_entries]
  std::int32_t n_entries;
  EntryType key_type = EntryType::kF32;  // the format of the rows of keys
  EntryType value_type = EntryType::kF32;
  // [key_dim] float16: the head's origin, which was subtracted from every key of the run before it was stored; null:
  // none. The score of a query q is then q.(k - origin) + q.origin.
  const std::byte* origin = nullptr;
};

// A view of all stored entries of one KV head.
struct HeadEntries {
  std::span<const EntryRun> runs;
  std::int32_t n_entries = 0;  // sum over the runs
};

// The rule by which scores become attention weights.
struct AttentionSpec {
  float scale;                      // softmax scale, usually 1/sqrt(key_dim)
  std::int32_t sliding_window = 0;  // a row sees positions > its own - sliding_window; 0: all
  float soft_cap = 0;  // a score s becomes soft_cap * tanh(s / soft_cap) (Gemma 2, arXiv 2408.00118); 0: stays s
  // [n_group] learned sink logits (gpt-oss): each joins its head's softmax, takes weight and has no value; null: none.
  const float* sink_logits = nullptr;
};

// The dimensions of attention in a head or layer, the same for all of its entries.
struct AttentionShape {
  int n_group;           // query heads per KV head (G), 1 .. kMaxGroup
  int key_dim;           // numbers of a query or key row, a multiple of kHeadDimUnit, at most kMaxHeadDim
  int value_dim;         // numbers of a value row and of an output, likewise
  EntryType key_type;    // type of most runs' keys, for which a kernel prepares; each run says its own
  EntryType value_type;  // type of most runs' values, likewise
  AttentionSpec spec;

  static bool is_supported_size(int dim) {
    return dim >= kHeadDimUnit && dim <= kMaxHeadDim && dim % kHeadDimUnit == 0;
  }
  // Returns the shape of one KV head from that of its layer, whose sink logits are those of all heads.
  AttentionShape of_head(int kv_head) const {
    AttentionShape shape = *this;
    if (spec.sink_logits != nullptr) shape.spec.sink_logits += kv_head * n_group;
    return shape;
  }

  bool is_supported() const {
    return n_group >= 1 && n_group <= kMaxGroup && is_supported_size(key_dim) && is_supported_size(value_dim);
  }
};

enum class RowKind { kKey, kValue };

// Returns the type in which a run's keys or values are stored.
inline EntryType row_type(const EntryRun& run, RowKind kind) {
  return kind == RowKind::kKey ? run.key_type : run.value_type;
}

// Returns the key or value of a run's entry i.
inline const std::byte* row_at(const AttentionShape& shape, const EntryRun& run, RowKind kind, std::int32_t i) {
  const int n = kind == RowKind::kKey ? shape.key_dim : shape.value_dim;
  return (kind == RowKind::kKey ? run.keys : run.values) +
         static_cast<std::size_t>(i) * row_bytes(row_type(run, kind), n);
}

// A block of consecutive query rows of one KV head's GQA group. Row r attends to the first `n_visible + r` entries,
// less those that a sliding window hides; the last entries are the rows' own.
struct QueryRows {
  const float* q;           // row r, query head g of the group: q + r * row_stride + g * key_dim; rotated
  std::int64_t row_stride;  // floats from row to row
  std::int32_t n_rows;
  std::int32_t n_visible;       // entries seen by row 0, itself included
  std::int32_t first_position;  // position of row 0; the rows' positions are consecutive
};

}  // namespace winnow::kernels
