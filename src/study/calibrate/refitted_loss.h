// LU-KV's loss of a head if values are refitted. It is not the importance of the dropped entries, but the error of the
// head's output for later queries, with the kept entries stored in the cache's types and their values fitted to the
// prompt's own queries (value_fit.h), as a cut leaves them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/entry_type.h"
#include "winnow/layer_view.h"

namespace winnow {

// A copy of a layer's reference rows, for after the prefill: [n_rows][n_head][key_dim], see LayerView.
struct ReferenceCopy {
  int n_rows = 0;
  std::vector<float> q;

  static ReferenceCopy of(const LayerView& view);
};

// The parameters of a cut of one head.
struct RefittedCut {
  std::int32_t n_context = 0;     // first entries, which are cut
  std::int32_t sinks = 0;         // number of these that are always kept, stored as they are
  std::span<const float> scores;  // [n_context - window]; the window is always kept
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
};

// Returns loss[i] of keeping the best i candidates besides sinks and window, [n_candidates + 1], never increasing:
// HeadOutput's error over the view's last n_rows queries. It is measured at some 16 places, denser where little is
// kept, and linear between them. The view must hold every token's entry, W_O and the rows.
std::vector<double> refitted_loss_curve(const LayerView& view, int kv_head, const RefittedCut& cut,
                                        const ReferenceCopy& reference, int n_rows);

}  // namespace winnow
