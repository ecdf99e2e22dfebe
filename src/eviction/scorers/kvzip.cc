// kvzip: the largest attention that a token gets from the rows of a pass that reconstructs the context.
// Kim et al., "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction", arXiv 2505.23416. A row's
// softmax goes over the whole context and its own pass's earlier keys; maximum over rows and over the group.
#include <algorithm>

#include "eviction/aligned_bytes.h"
#include "eviction/pooling.h"
#include "eviction/query_rows.h"
#include "eviction/registry.h"
#include "kernels/rows.h"
#include "kernels/window_statistics.h"
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
    if (evidence.view().passes.empty()) {
      throw Error(ErrorCode::kInternal, "kvzip got no reconstruction pass: the engine did not run one");
    }
    for (const ReconstructionPass& pass : evidence.view().passes) evidence.check_finite(pass.q, pass.n_rows);
    LayerScores scores(evidence.n_kv_head());
    evidence.for_each_head([&](int h) { scores[h] = score_head(evidence, h); });
    return scores;
  }

 private:
  static constexpr int kBlockRows = 64;

  static std::vector<float> score_head(const LayerEvidence& evidence, int h) {
    const LayerView& view = evidence.view();
    const int d = view.shape.key_dim;
    const std::int32_t n_columns = evidence.n_prefix(h);
    const EntryType key_type = kernels::plain_type(view.shape.key_type);
    const std::size_t key_bytes = row_bytes(key_type, d);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, kBlockRows));
    std::vector<float> best(std::size_t(view.shape.n_group) * n_columns, 0.0F);
    std::vector<float> max(best.size());
    for (const ReconstructionPass& pass : view.passes) {
      // The pass's own keys follow the context as one more run. Nobody reads its values.
      std::vector<std::byte> keys(pass.n_rows * key_bytes);
      std::vector<std::int32_t> positions(pass.n_rows);
      for (int r = 0; r < pass.n_rows; ++r) {
        kernels::store_row(key_type, pass.k + (std::ptrdiff_t{r} * view.n_kv_head + h) * d, keys.data() + r * key_bytes,
                           d);
        positions[r] = view.n_tokens + r;
      }
      std::vector<kernels::EntryRun> runs(view.heads[h].runs.begin(), view.heads[h].runs.end());
      runs.push_back({.keys = keys.data(),
                      .values = nullptr,
                      .positions = positions.data(),
                      .n_entries = pass.n_rows,
                      .is_plain = true});
      const kernels::HeadEntries entries{.runs = runs, .n_entries = view.heads[h].n_entries + pass.n_rows};
      for (int first = 0; first < pass.n_rows; first += kBlockRows) {
        const int n_rows = std::min(kBlockRows, pass.n_rows - first);
        kernels::QueryRows rows = group_rows(view, pass.q, n_rows, h);
        rows.q += first * rows.row_stride;
        rows.n_visible = view.heads[h].n_entries + first + 1;
        rows.first_position = view.n_tokens + first;
        kernels::window_statistics(view.shape.of_head(h), entries, rows,
                                   {.n_columns = n_columns,
                                    .mean = nullptr,
                                    .m2 = nullptr,
                                    .max = max.data(),
                                    .last = nullptr,
                                    .entropy = nullptr},
                                   scratch.span());
        for (std::size_t i = 0; i < best.size(); ++i) {
          if (!(max[i] <= best[i])) best[i] = max[i];  // a NaN stays
        }
      }
    }
    return group_only(best, view.shape.n_group, GroupReduction::kMax);
  }
};

}  // namespace

const Scorer& kvzip_scorer() {
  static const KvZip instance;
  return instance;
}

}  // namespace winnow
