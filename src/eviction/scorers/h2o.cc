// h2o: the sum of the attention weights that a token got from all query rows, mean over the GQA group.
// Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", arXiv
// 2306.14048:
//   score_i = 1/G sum_h sum_j A[h][j][i], j over all rows, h over the group
// The column sums of the causal matrix are streamed from the rows' saved log-sum-exps, so that memory is linear in the
// prompt. last-rows=n counts the last n rows only (as CriticalKV's authors simulate it). In a later cut the rows are
// those of the turn or chunk since the last cut; during decoding they are the last window rows that the engine saved.
// Rows that an earlier cut has dropped do not count.
#include "eviction/evidence/column_folds.h"
#include "eviction/evidence/pooling.h"
#include "eviction/options/registry.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class H2o final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    const int n_last = last_rows(options);
    if (n_last > 0) return {.window_rows = n_last, .window_columns = kWindowMean};
    return {.log_sum_exp = true, .all_queries = true, .window_columns = kWindowMean};
  }
  std::vector<Option> options() const override {
    return {integer_option("last-rows", 0, kMaxIntegerOption, 0, "last query rows that count, 0: all")};
  }
  int least_window(const EvictionOptions&) const override { return 0; }  // its rows are saved besides the window's
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores(evidence.n_kv_head());
    const LayerView& view = evidence.layer();
    const int n_last = last_rows(options);
    const bool has_all = view.all_q != nullptr || view.has_all_queries;
    if (n_last > 0 || (!has_all && view.n_window_rows > 0)) {
      const WindowStatistics& window = evidence.window(n_last > 0 ? n_last : view.n_window_rows);
      evidence.for_each_head([&](int h) {
        scores[h] = group_only(window.mean[h], evidence.n_group(), GroupReduction::kMean);
        for (float& score : scores[h]) score *= static_cast<float>(window.n_rows);
      });
      return scores;
    }
    if (!has_all || view.log_sum_exp == nullptr || view.n_query_rows < 1) {
      throw Error(ErrorCode::kInternal, "h2o got no query rows: the engine did not save them");
    }
    evidence.check_finite(view.all_q, view.n_query_rows);
    const StatisticsRows rows = {.q = view.all_q, .n_rows = view.n_query_rows, .sees_all = false};
    const std::vector<std::vector<float>> sums =
        fold_columns(evidence, kernels::ColumnFold::kSum, rows, view.log_sum_exp, prefix_ranges(evidence));
    evidence.for_each_head([&](int h) { scores[h] = group_only(sums[h], evidence.n_group(), GroupReduction::kMean); });
    return scores;
  }

 private:
  static int last_rows(const EvictionOptions& options) { return static_cast<int>(options.integer("last-rows")); }
};

}  // namespace

const Scorer& h2o_scorer() {
  static const H2o instance;
  return instance;
}

}  // namespace winnow
