// streaming-llm: the attention sinks, then recency.
// Xiao et al., "Efficient Streaming Language Models with Attention Sinks", arXiv 2309.17453:
//   score_i = i, the token's position; the sinks are kept by the option of that name
#include "eviction/options/registry.h"

namespace winnow {
namespace {

class StreamingLlm final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
  bool is_non_negative() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    LayerScores scores;
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      const std::vector<std::int32_t> positions = evidence.positions(h);
      scores.emplace_back(positions.begin(), positions.begin() + evidence.n_prefix(h));
    }
    return scores;
  }
};

}  // namespace

const Scorer& streaming_llm_scorer() {
  static const StreamingLlm instance;
  return instance;
}

}  // namespace winnow
