// The shape of a sequence's cache: entries of each layer and token, and the bytes that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "winnow/entries.h"
#include "winnow/entry_type.h"
#include "winnow/eviction.h"

namespace winnow {

// Entries per page. Small enough that a ragged cache of 90 heads wastes little (half a page a head), large enough that
// a run keeps the attention kernels busy.
inline constexpr std::int32_t kPageEntries = 32;

// A head's first entries stay uncoded but in a window: they are the sinks, on which most attention lies.
inline constexpr std::int32_t kPlainEntries = 4;

// Positions on a page are 16-bit offsets. One whose entries lie further apart takes this besides.
inline constexpr std::int64_t kOffsets = 1 << 16;
inline constexpr std::size_t kFarPositionsBytes = kPageEntries * sizeof(std::int32_t);

// The entries that a layer stores of each token.
struct LayerShape {
  int n_kv_head = 0;  // 0: no entries (a recurrent layer, or one that attends to another's)
  int key_dim = 0;
  int value_dim = 0;
  std::int32_t sliding_window = 0;  // entries that can still be seen, settle() frees the others; 0: all
  bool is_shared = false;           // later layers attend to its entries, too

  // Returns whether eviction methods cut the layer.
  bool is_cut() const { return n_kv_head > 0 && sliding_window == 0; }
  bool operator==(const LayerShape&) const = default;
};

// The best entries of a cut, stored in more bits than the others.
struct HighTypes {
  EntryType key_type;
  EntryType value_type;
  double fraction;  // of the entries that a cut keeps, in [0, 1]

  bool operator==(const HighTypes&) const = default;
};

// The types of entries that follow a cut, once their pages are full and until the next cut, and of windows: a method's
// budget counts the layers that it may cut, and every token looks at the last entries.
struct LaterTypes {
  EntryType key_type;
  EntryType value_type;

  bool operator==(const LaterTypes&) const = default;
};

struct CacheShape {
  std::vector<LayerShape> layers;
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  std::optional<HighTypes> high = {};    // only where rows are coded; comes plain in the same types
  std::optional<LaterTypes> later = {};  // likewise; nothing: as what a cut keeps
  // Whether truncate() goes back to any page, as long as no window has moved on. What it drops may then have left no
  // trace in what stays, so a head's origin is the mean over the first page that is coded, not over all that is there.
  bool is_truncatable = false;

  int n_layer() const { return static_cast<int>(layers.size()); }
  const LayerShape& layer(int l) const { return layers[static_cast<std::size_t>(l)]; }
  int n_heads() const;      // KV heads of all layers
  int n_cut_heads() const;  // of the layers that methods cut
  // Whether rows are stored as codes, in other types than those in which they come.
  bool has_codes() const { return kernels::is_coded(key_type) || kernels::is_coded(value_type); }
  // How entries of a layer are stored once they are settled; of the layers that are cut those that are not the best.
  EntryType key_type_of(int layer) const { return holds_later(layer) ? later->key_type : key_type; }
  EntryType value_type_of(int layer) const { return holds_later(layer) ? later->value_type : value_type; }
  bool holds_later(int layer) const { return later && this->layer(layer).sliding_window > 0; }
  std::size_t key_bytes(int layer) const { return row_bytes(key_type, this->layer(layer).key_dim); }
  std::size_t value_bytes(int layer) const { return row_bytes(value_type, this->layer(layer).value_dim); }
  // Keys, value and position of one token in one KV head of the layer.
  std::size_t entry_bytes(int layer) const;
  std::size_t high_entry_bytes(int layer) const;  // of the best ones, where these are stored otherwise
  // kPageEntries keys, then as many values, then as many positions.
  std::size_t page_bytes(int layer) const { return kPageEntries * entry_bytes(layer); }
  std::size_t high_page_bytes(int layer) const { return kPageEntries * high_entry_bytes(layer); }
  // A head's origin: nothing where keys are not coded.
  std::size_t origin_bytes(int layer) const {
    return kernels::is_coded(key_type) ? row_bytes(EntryType::kF16, this->layer(layer).key_dim) : 0;
  }
  // What n entries of a head take once they are settled, its origin with them: all coded but the first ones of a layer
  // that is cut.
  std::size_t head_bytes(int layer, std::int64_t n) const;

  // Of what methods cut after n_tokens tokens: what budgets in bytes are taken in. With two kinds of entries a mean
  // over both.
  EntryBytes cut_entry_bytes(std::int64_t n_tokens) const;
  // What n_tokens tokens take when nothing is cut: windows hold what they can see.
  std::int64_t full_entries(std::int64_t n_tokens) const;
  std::size_t full_bytes(std::int64_t n_tokens) const;

  // The same with heads in the layers first, ..., last - 1 alone: what one machine of several holds.
  CacheShape with_layers(int first, int last) const;
  // With the types in which rows come: a code is made of what stays only.
  CacheShape plain() const;
  // With the types in which entries wait for their values to be refitted (RaggedCache::hold_values).
  CacheShape held() const;

  bool operator==(const CacheShape&) const = default;
};

}  // namespace winnow
