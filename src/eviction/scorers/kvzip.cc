// kvzip: the largest attention that a token gets from the rows of a pass that reconstructs the context.
// Kim et al., "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction", arXiv 2505.23416. A row's
// softmax goes over the whole context and its own pass's earlier keys; maximum over rows and over the group.
#include <cstddef>

#include "eviction/column_folds.h"
#include "eviction/pooling.h"
#include "eviction/query_rows.h"
#include "eviction/registry.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class KvZip final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override {
    return {.reconstruction_pass = true, .reconstruction_only = true};
  }
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    const LayerView& view = evidence.view();
    if (view.passes.empty()) {
      throw Error(ErrorCode::kInternal, "kvzip got no reconstruction pass: the engine did not run one");
    }
    LayerScores scores(evidence.n_kv_head());
    for (const ReconstructionPass& pass : view.passes) {
      evidence.check_finite(pass.q, pass.n_rows);
      const auto rows_of = [&](int h) {
        kernels::QueryRows rows = group_rows(view, pass.q, pass.n_rows, h);
        rows.n_visible = view.heads[h].n_entries;  // of the context: what the rows see of each other is in their sums
        rows.first_position = view.n_tokens;
        return rows;
      };
      const std::vector<std::vector<float>> maxima =
          fold_prefix(evidence, kernels::ColumnFold::kMax, rows_of, pass.log_sum_exp);
      for (int h = 0; h < evidence.n_kv_head(); ++h) {
        const std::vector<float> of_pass = group_only(maxima[h], evidence.n_group(), GroupReduction::kMax);
        scores[h].resize(of_pass.size());
        for (std::size_t i = 0; i < of_pass.size(); ++i) {
          if (!(of_pass[i] <= scores[h][i])) scores[h][i] = of_pass[i];  // a NaN stays
        }
      }
    }
    return scores;
  }
};

}  // namespace

const Scorer& kvzip_scorer() {
  static const KvZip instance;
  return instance;
}

}  // namespace winnow
