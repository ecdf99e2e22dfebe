// The ranking of one layer's candidates, best first. It is kept in place of the scores until the last layer is done.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// The ranking of one head. A candidate is named by its offset among the head's candidates, which are the stored entries
// before the observation window less the sinks.
struct HeadRanking {
  std::vector<std::int32_t> order;          // [n_candidates] offsets, best first; of equal scores the later token first
  std::vector<float> scores;                // [n_candidates] scores in that order
  std::vector<std::int32_t> product_order;  // [n_candidates] offsets by score x value term (critical), or empty
};

// The ranking of one layer.
class LayerRanking {
 public:
  // Ranks the candidates of each head. Throws Error(kInvalidArgument), naming layer and head, for a score that is not
  // finite.
  LayerRanking(const LayerEvidence& evidence, const LayerScores& scores);

  int n_kv_head() const { return static_cast<int>(heads_.size()); }
  std::int64_t n_candidates() const { return n_candidates_; }
  HeadRanking& head(int h) { return heads_[h]; }
  const HeadRanking& head(int h) const { return heads_[h]; }

  // Returns the heads of the layer's best `n` candidates, best first; equal scores go to the later token, then to the
  // lower head. The vector may be longer than n. Not thread-safe: it is computed when first asked for.
  const std::vector<std::uint16_t>& flat_order(std::int64_t n);

  // Returns each head's number of candidates among the layer's best `n`: [n_kv_head]. Not thread-safe either.
  std::vector<std::int64_t> flat_counts(std::int64_t n);

  // Returns a candidate's position in the sequence.
  std::int32_t position(int head, std::int32_t candidate) const;

 private:
  std::vector<HeadRanking> heads_;
  std::vector<std::vector<std::int32_t>> positions_;  // [n_kv_head][n_candidates], empty if consecutive
  std::vector<std::int32_t> first_position_;          // [n_kv_head]
  std::vector<std::uint16_t> flat_order_;
  std::int64_t n_candidates_ = 0;
};

// Returns the offsets of `scores`, best first; of equal scores the larger offset first. All scores must be finite.
std::vector<std::int32_t> order_by_score(const std::vector<float>& scores);

}  // namespace winnow
