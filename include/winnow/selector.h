// The interface of selectors, which choose a head's candidates to keep, given their number.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/api.h"
#include "winnow/ranking.h"
#include "winnow/scorer.h"

namespace WINNOW_API winnow {

// A selector. Stateless: there is one instance per process, and it may be used from any thread.
class Selector {
 public:
  virtual ~Selector() = default;
  // Returns the evidence that the engine must save for prepare().
  virtual EvidenceNeeds needs(const EvictionOptions&) const { return {}; }
  // Returns the options that the selector reads.
  virtual std::vector<Option> options() const { return {}; }

  // Returns true if the scores must be attention weights (Scorer::is_attention).
  virtual bool needs_attention() const { return false; }

  // Adds to the ranking anything that select() reads besides the order by score, e.g. HeadRanking::product_order.
  virtual void prepare(LayerEvidence&, const LayerScores&, const EvictionOptions&, LayerRanking&) const {}

  // Returns `budget` offsets of candidates, ascending. A larger budget must keep all that a smaller one keeps: the
  // cascade relies on it.
  virtual std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                           const EvictionOptions& options) const = 0;
};

}  // namespace winnow
