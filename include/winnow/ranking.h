// The candidates of one layer, best first: what is kept of the scores until the last layer is done.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// One head's candidates as offsets into its candidates (stored prefix entries less the sinks).
struct HeadRanking {
  std::vector<std::int32_t> order;          // [n_candidates], best first; equal scores: the later token first
  std::vector<float> scores;                // [n_candidates], in that order
  std::vector<std::int32_t> product_order;  // [n_candidates] or empty: by score x value term (critical)
};

class LayerRanking {
 public:
  // Throws Error(kInvalidArgument) for a score that is not finite, naming layer and head.
  LayerRanking(const LayerEvidence& evidence, const LayerScores& scores);

  int n_kv_head() const { return static_cast<int>(heads_.size()); }
  std::int64_t n_candidates() const { return n_candidates_; }
  HeadRanking& head(int h) { return heads_[h]; }
  const HeadRanking& head(int h) const { return heads_[h]; }

  // The heads of the layer's best `n` candidates, best first: equal scores go to the later token, then to the lower
  // head. At least n long. Not thread-safe: made when first asked for.
  const std::vector<std::uint16_t>& flat_order(std::int64_t n);

  // How many of the layer's best `n` candidates each head has.
  std::vector<std::int64_t> flat_counts(std::int64_t n);

  std::int32_t position(int head, std::int32_t candidate) const;  // in the sequence

 private:
  std::vector<HeadRanking> heads_;
  std::vector<std::vector<std::int32_t>> positions_;  // [n_kv_head][n_candidates], empty if consecutive
  std::vector<std::int32_t> first_position_;          // [n_kv_head]
  std::vector<std::uint16_t> flat_order_;
  std::int64_t n_candidates_ = 0;
};

// Offsets of `scores`, best first; equal scores: the larger offset first. All scores are finite.
std::vector<std::int32_t> order_by_score(const std::vector<float>& scores);

}  // namespace winnow
