// h2o: the attention that a token got from all query rows, mean over the group.
// Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models", arXiv
// 2306.14048. The column sums of the causal matrix are streamed from the rows' saved log-sum-exps: memory is linear in
// the prompt. last-rows=n counts the last n rows only (as CriticalKV's authors simulate it). On a re-cut the rows are
// those of the turn or chunk fed since the last one, while decoding the last window rows that the engine saved.
#include <algorithm>

#include "eviction/aligned_bytes.h"
#include "eviction/pooling.h"
#include "eviction/query_rows.h"
#include "eviction/registry.h"
#include "kernels/window_statistics.h"
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
  int least_window(const EvictionOptions&) const override { return 0; }  // its rows are saved beside the window
  bool is_attention() const override { return true; }

  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    LayerScores scores(evidence.n_kv_head());
    const LayerView& view = evidence.view();
    const int n_last = last_rows(options);
    if (n_last > 0 || (view.all_q == nullptr && view.n_window_rows > 0)) {
      const WindowStatistics& window = evidence.window(n_last > 0 ? n_last : view.n_window_rows);
      evidence.for_each_head([&](int h) {
        scores[h] = group_only(window.mean[h], evidence.n_group(), GroupReduction::kMean);
        for (float& score : scores[h]) score *= static_cast<float>(window.n_rows);
      });
      return scores;
    }
    const std::vector<std::vector<float>> sums = column_sums(evidence);
    evidence.for_each_head([&](int h) { scores[h] = group_only(sums[h], evidence.n_group(), GroupReduction::kMean); });
    return scores;
  }

 private:
  static int last_rows(const EvictionOptions& options) { return static_cast<int>(options.integer("last-rows")); }

  // A head's rows are split in so many parts, whatever the number of threads: results do not depend on it.
  static constexpr int kParts = 4;
  static constexpr int kBlockRows = 256;

  // [n_kv_head][n_group * n_prefix]
  static std::vector<std::vector<float>> column_sums(LayerEvidence& evidence) {
    const LayerView& view = evidence.view();
    if (view.all_q == nullptr || view.log_sum_exp == nullptr || view.n_query_rows < 1) {
      throw Error(ErrorCode::kInternal, "h2o got no query rows: the engine did not save them");
    }
    const int n_rows = view.n_query_rows;
    const int n_group = evidence.n_group();
    evidence.check_finite(view.all_q, n_rows);
    std::vector<std::vector<float>> partial(std::size_t(evidence.n_kv_head()) * kParts);
    evidence.parallel(static_cast<int>(partial.size()), [&](int item) {
      const int h = item / kParts;
      const int part = item % kParts;
      const auto bound = [&](int p) { return static_cast<int>(std::int64_t{n_rows} * p / kParts); };
      std::vector<float>& sums = partial[item];
      sums.resize(std::size_t(n_group) * evidence.n_prefix(h), 0.0F);
      AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, kBlockRows));
      std::vector<float> log_sum_exp;
      for (int first = bound(part); first < bound(part + 1); first += kBlockRows) {
        const int n = std::min(kBlockRows, bound(part + 1) - first);
        log_sum_exp.clear();
        for (int r = first; r < first + n; ++r) {
          const float* row = view.log_sum_exp + std::ptrdiff_t{r} * view.n_head + h * n_group;
          log_sum_exp.insert(log_sum_exp.end(), row, row + n_group);
        }
        kernels::QueryRows rows = group_rows(view, view.all_q, n_rows, h);
        rows.q += first * rows.row_stride;
        rows.n_rows = n;
        rows.n_visible += first;
        rows.first_position += first;
        kernels::add_column_sums(view.shape, view.heads[h], rows, log_sum_exp.data(), evidence.n_prefix(h), sums.data(),
                                 scratch.span());
      }
    });
    std::vector<std::vector<float>> sums(evidence.n_kv_head());
    evidence.for_each_head([&](int h) {
      sums[h] = std::move(partial[std::size_t(h) * kParts]);
      for (int part = 1; part < kParts; ++part) {
        const std::vector<float>& more = partial[std::size_t(h) * kParts + part];
        for (std::size_t i = 0; i < more.size(); ++i) sums[h][i] += more[i];
      }
    });
    return sums;
  }
};

}  // namespace

const Scorer& h2o_scorer() {
  static const H2o instance;
  return instance;
}

}  // namespace winnow
