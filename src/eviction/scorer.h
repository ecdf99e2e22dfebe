// One score per KV head and stored prefix token; higher means keep.
#pragma once

#include <memory>
#include <vector>

#include "eviction/evidence.h"
#include "winnow/eviction.h"

namespace winnow {

// [n_kv_head][prefix entries of that head], in the order of the stored entries; sinks included, window not.
using LayerScores = std::vector<std::vector<float>>;

class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual EvidenceNeeds needs(const EvictionOptions& options) const = 0;
  virtual LayerScores score(const LayerView& view, const EvictionOptions& options,
                            const ParallelFor& parallel_for) const = 0;
  // Whether a score is an attention weight (what the `critical` selector multiplies with value norms).
  virtual bool is_attention() const { return false; }
};

}  // namespace winnow
