// Which of a head's candidates stay, given how many.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/ranking.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// Stateless; one instance per process, safe to use from any thread.
class Selector {
 public:
  virtual ~Selector() = default;
  virtual EvidenceNeeds needs(const EvictionOptions&) const { return {}; }
  virtual std::vector<Option> options() const { return {}; }

  // Whether the scores must be attention weights.
  virtual bool needs_attention() const { return false; }

  // Adds to the ranking what select() will read beyond the order by score.
  virtual void prepare(LayerEvidence&, const LayerScores&, const EvictionOptions&, LayerRanking&) const {}

  // `budget` offsets of candidates, ascending. The sets of two budgets are nested: the cascade relies on it.
  virtual std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                           const EvictionOptions& options) const = 0;
};

}  // namespace winnow
