// The sequence that is being cut.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// The best entries that a cut keeps are stored in more bits.
struct FineShare {
  double part = 0;           // of all that stay; 0: all are stored alike
  std::int32_t unit = 1;     // they come in whole pages of so many entries of a head
  std::int32_t n_plain = 0;  // a head's first entries, which are stored as they come and not among them
};

struct CutShape {
  std::vector<int> heads;  // [n_layer] KV heads; 0: a layer that is left alone, and counts nowhere
  std::int32_t n_tokens;   // logical length N
  std::int64_t total;      // T, entries over all layers and heads that are cut
  // Entries stored at present over all layers and heads, when the cache is cut again; 0 in layer-major prefill, where
  // every head of every layer comes with all N. A re-cut is one-shot: nothing is returned before the last layer.
  std::int64_t stored = 0;
  // [heads of all layers] entries, protected ones included: every head is cut back to its own number and nothing is
  // allotted (CAKE's cut while decoding). `total` is not looked at then. Empty: allot.
  std::vector<std::int32_t> fixed_budget = {};
  FineShare fine = {};

  int n_layer() const { return static_cast<int>(heads.size()); }
  int n_cut_layers() const;
  std::int64_t n_heads() const;
  std::int64_t first_head(int layer) const;  // heads of the layers before
};

}  // namespace winnow
