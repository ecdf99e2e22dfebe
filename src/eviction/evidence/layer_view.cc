#include "winnow/layer_view.h"

#include <algorithm>

namespace winnow {

EvidenceNeeds& EvidenceNeeds::operator|=(const EvidenceNeeds& other) {
  window_rows = std::max(window_rows, other.window_rows);
  log_sum_exp |= other.log_sum_exp;
  all_queries |= other.all_queries;
  query_moments |= other.query_moments;
  moments_skip = std::max(moments_skip, other.moments_skip);
  output_projection |= other.output_projection;
  reconstruction_pass |= other.reconstruction_pass;
  late_repeat |= other.late_repeat;
  reconstruction_only |= other.reconstruction_only;
  reference_rows |= other.reference_rows;
  earlier_scores |= other.earlier_scores;
  window_columns |= other.window_columns;
  return *this;
}

}  // namespace winnow
