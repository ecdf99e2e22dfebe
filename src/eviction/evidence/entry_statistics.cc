#include "eviction/evidence/entry_statistics.h"

namespace winnow {

LayerView with_copies(const LayerView& view) {
  LayerView copy = view;
  copy.heads = view.statistics->host_heads();
  if (view.has_all_queries && view.all_q == nullptr) copy.all_q = view.statistics->kept_queries(0, view.n_query_rows);
  copy.passes = view.statistics->copied_passes(view.passes);
  if (view.has_output_projection) copy.w_o = view.statistics->output_projection();
  copy.statistics = nullptr;
  return copy;
}

}  // namespace winnow
