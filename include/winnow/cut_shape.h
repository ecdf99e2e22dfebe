// The size of a cut: the sequence that is cut and the number of entries that it keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// The part of the kept entries that is stored in more bits than the rest: the best ones by score.
struct HighPrecision {
  double fraction = 0;       // fraction of all kept entries; 0: all are stored in the same types
  std::int32_t unit = 1;     // a head's number of such entries is a multiple of this: the entries of a page
  std::int32_t n_plain = 0;  // a head's first entries, which are stored unquantised and not counted in the fraction
};

// The dimensions of one cut of a sequence's KV cache.
struct CutShape {
  std::vector<int> heads;  // [n_layer] KV heads; 0: a layer that is never cut, and counts in no sum
  std::int32_t n_tokens;   // logical length N
  std::int64_t total;      // T: entries to keep over all layers and heads that are cut
  // Entries stored at present over all layers and heads, when a cache is cut again; 0 in layer-major prefill, where
  // every head of every layer comes with all N entries. A re-cut is one-shot: it returns nothing before the last layer.
  std::int64_t stored = 0;
  // [heads of all layers] entries to keep, protected ones included: every head is cut back to its own number and no
  // budget is shared out (CAKE's cut while decoding); `total` is then ignored. Empty: the allocators share out `total`.
  std::vector<std::int32_t> fixed_budget = {};
  HighPrecision high = {};

  int n_layer() const { return static_cast<int>(heads.size()); }
  int n_cut_layers() const;
  std::int64_t n_heads() const;
  std::int64_t first_head(int layer) const;  // index of the layer's first KV head, counted over the layers before it
};

}  // namespace winnow
