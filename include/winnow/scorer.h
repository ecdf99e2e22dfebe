// One score per KV head and stored prefix token; higher means keep.
#pragma once

#include <vector>

#include "winnow/api.h"
#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"
#include "winnow/option.h"

namespace WINNOW_API winnow {

// [n_kv_head][prefix entries of that head], in the order of the stored entries; sinks included, window not.
using LayerScores = std::vector<std::vector<float>>;

// Stateless; one instance per process, safe to use from any thread.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual EvidenceNeeds needs(const EvictionOptions& options) const = 0;
  virtual LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const = 0;
  virtual std::vector<Option> options() const { return {}; }
  // The shortest window with which it can score; by default one row where window_columns are needed.
  virtual int least_window(const EvictionOptions& options) const;
  // Whether a score is an attention weight (what the `critical` selector multiplies with value norms).
  virtual bool is_attention() const { return false; }
  // Whether scores are never negative (what an entropy over them needs).
  virtual bool is_mass() const { return is_attention(); }
};

}  // namespace winnow
