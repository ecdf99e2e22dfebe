// LU-KV's loss of a head where values are refitted: not the importance of what is gone, but the error of the head's
// output for the queries that came, with what stays stored in the cache's types and its values fitted to the prompt's
// own queries (value_fit.h), as a cut leaves it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/entry_type.h"
#include "winnow/layer_view.h"

namespace winnow {

// A layer's reference rows, kept from the prefill: [n_rows][n_head][key_dim], see LayerView.
struct ReferenceQueries {
  int n_rows = 0;
  std::vector<float> q;

  static ReferenceQueries of(const LayerView& view);
};

// What a cut does to a head.
struct RefittedCut {
  std::int32_t n_context = 0;     // entries that are cut, the first ones
  std::int32_t sinks = 0;         // of these, always kept, and stored as they are
  std::span<const float> scores;  // [n_context - window]; the window is always kept
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
};

// loss[i] of keeping the best i candidates beside sinks and window, [n_candidates + 1], never increasing: HeadOutput's
// error over the view's last n_rows queries. Measured at some 16 places, denser where little is kept; a line between
// them. The view holds every token's entry, W_O and the rows.
std::vector<double> refitted_loss_curve(const LayerView& view, int kv_head, const RefittedCut& cut,
                                        const ReferenceQueries& reference, int n_rows);

}  // namespace winnow
