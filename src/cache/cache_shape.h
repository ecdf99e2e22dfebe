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

// Entries per page: small enough that a ragged cache of 90 heads wastes little (half a page a head), large enough that
// a run keeps the attention kernels busy.
inline constexpr std::int32_t kPageEntries = 32;

// A head's first entries stay unquantised, except in a sliding window: they are the sinks, on which most attention
// lies.
inline constexpr std::int32_t kPlainEntries = 4;

// Positions on a page are 16-bit offsets. A page whose entries lie further apart takes kFarPositionsBytes more.
inline constexpr std::int64_t kOffsets = 1 << 16;
inline constexpr std::size_t kFarPositionsBytes = kPageEntries * sizeof(std::int32_t);

// The entries that a layer stores for each token.
struct LayerShape {
  int n_kv_head = 0;  // 0: no entries (a recurrent layer, or one that attends to another's)
  int key_dim = 0;
  int value_dim = 0;
  std::int32_t sliding_window = 0;  // entries that can still be seen (settle() frees the others); 0: all
  bool is_shared = false;           // later layers attend to its entries, too

  // Returns whether eviction methods cut the layer.
  bool is_evictable() const { return n_kv_head > 0 && sliding_window == 0; }
  // Returns the number of KV heads that eviction methods cut: all of the layer's, or none.
  int n_evictable_heads() const { return is_evictable() ? n_kv_head : 0; }
  bool operator==(const LayerShape&) const = default;
};

// The best entries of a cut, stored in more bits than the others.
struct HighTypes {
  EntryType key_type;
  EntryType value_type;
  double fraction;  // of the entries that a cut keeps, in [0, 1]

  bool operator==(const HighTypes&) const = default;
};

// The types of entries that follow a cut (once their pages are full, until the next cut) and of entries in sliding
// windows. A method's budget counts only the layers that it may cut, and every token attends to the last entries.
struct LaterTypes {
  EntryType key_type;
  EntryType value_type;

  bool operator==(const LaterTypes&) const = default;
};

struct CacheShape {
  std::vector<LayerShape> layers;
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  std::optional<HighTypes> high = {};    // only where rows are quantised; its rows arrive in the same plain types
  std::optional<LaterTypes> later = {};  // only where rows are quantised; nullopt: the types of the entries that a cut
                                         // keeps
  // True if truncate() can go back to any page, as long as no window has moved on. The dropped entries must then leave
  // no trace in those that stay, so a head's origin is the mean over its first quantised page, not over all entries.
  bool is_truncatable = false;

  int n_layer() const { return static_cast<int>(layers.size()); }
  const LayerShape& layer(int l) const { return layers[static_cast<std::size_t>(l)]; }
  int n_heads() const;      // KV heads of all layers
  int n_cut_heads() const;  // of the layers that methods cut
  // Returns true if rows are quantised, i.e. stored in other types than those in which they arrive.
  bool has_codes() const { return kernels::is_coded(key_type) || kernels::is_coded(value_type); }
  // Return the types of a layer's settled entries; in a layer that is cut, of those that are not the best.
  EntryType key_type_of(int layer) const { return holds_later(layer) ? later->key_type : key_type; }
  EntryType value_type_of(int layer) const { return holds_later(layer) ? later->value_type : value_type; }
  bool holds_later(int layer) const { return later && this->layer(layer).sliding_window > 0; }
  std::size_t key_bytes(int layer) const { return row_bytes(key_type, this->layer(layer).key_dim); }
  std::size_t value_bytes(int layer) const { return row_bytes(value_type, this->layer(layer).value_dim); }
  // Returns the bytes of one token's key, value and position in one KV head of the layer.
  std::size_t entry_bytes(int layer) const;
  std::size_t high_entry_bytes(int layer) const;  // of the best ones, if these are stored in other types
  // Return the bytes of kPageEntries keys, as many values and as many positions.
  std::size_t page_bytes(int layer) const { return kPageEntries * entry_bytes(layer); }
  std::size_t high_page_bytes(int layer) const { return kPageEntries * high_entry_bytes(layer); }
  // Returns the bytes of a head's origin: 0 if keys are not quantised.
  std::size_t origin_bytes(int layer) const {
    return kernels::is_coded(key_type) ? row_bytes(EntryType::kF16, this->layer(layer).key_dim) : 0;
  }
  // Returns the bytes of n settled entries of a head, its origin included. All are quantised but the first ones of a
  // layer that is cut.
  std::size_t head_bytes(int layer, std::int64_t n) const;

  // Returns the bytes of an entry in the layers that methods cut, after n_tokens tokens: the unit of budgets in bytes.
  // With two kinds of entries it is a mean over both.
  EntryBytes cut_entry_bytes(std::int64_t n_tokens) const;
  // Return the entries and bytes of n_tokens tokens if nothing is cut; a sliding window holds what it can see.
  std::int64_t full_entries(std::int64_t n_tokens) const;
  std::size_t full_bytes(std::int64_t n_tokens) const;

  // Returns this shape with heads only in the layers first, ..., last - 1: the share of one machine of several.
  CacheShape with_layers(int first, int last) const;
  // Returns this shape with the types in which rows arrive: only rows that stay are quantised.
  CacheShape plain() const;
  // Returns this shape with the types in which entries wait for their values to be refitted (RaggedCache::hold_values).
  CacheShape held() const;

  bool operator==(const CacheShape&) const = default;
};

}  // namespace winnow
