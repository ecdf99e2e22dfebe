// One score per KV head and stored prefix token; higher means keep.
#pragma once

#include <string_view>
#include <vector>

#include "eviction/layer_evidence.h"
#include "winnow/eviction.h"

namespace winnow {

// [n_kv_head][prefix entries of that head], in the order of the stored entries; sinks included, window not.
using LayerScores = std::vector<std::vector<float>>;

// Names of the options that a part reads, as in the text form.
using OptionNames = std::vector<std::string_view>;

// Stateless; one instance per process, safe to use from any thread.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual EvidenceNeeds needs(const EvictionOptions& options) const = 0;
  virtual LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const = 0;
  virtual OptionNames options() const { return {}; }
  // Whether a score is an attention weight (what the `critical` selector multiplies with value norms).
  virtual bool is_attention() const { return false; }
  // Whether scores are never negative (what an entropy over them needs).
  virtual bool is_mass() const { return is_attention(); }
};

}  // namespace winnow
