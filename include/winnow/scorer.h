// The interface of scorers, which give every KV head one score per stored entry before the observation window. The
// higher the score, the sooner an entry is kept.
#pragma once

#include <vector>

#include "winnow/api.h"
#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"
#include "winnow/option.h"

namespace WINNOW_API winnow {

// The scores of a layer, [n_kv_head][n_prefix of that head], in the order of the stored entries. Sinks are included,
// the window is not.
using LayerScores = std::vector<std::vector<float>>;

// A scorer. Stateless: there is one instance per process, and it may be used from any thread.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // Returns the evidence that the engine must save for score().
  virtual EvidenceNeeds needs(const EvictionOptions& options) const = 0;
  // Returns the scores of a layer. Every score must be finite.
  virtual LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const = 0;
  // Returns the options that the scorer reads.
  virtual std::vector<Option> options() const { return {}; }
  // Returns the shortest window with which it can score; by default 1 if it needs the mean, M2 or maximum over the
  // window's rows (window_columns), else 0.
  virtual int least_window(const EvictionOptions& options) const;
  // Returns true if a score is an attention weight, which the `critical` selector multiplies with value norms.
  virtual bool is_attention() const { return false; }
  // Returns true if scores are never negative, which an entropy over them needs.
  virtual bool is_non_negative() const { return is_attention(); }
};

}  // namespace winnow
