// Cuts of entries whose rows the processor cannot read, measured where the rows are.
#include "eviction/evidence/entry_statistics.h"

#include <gtest/gtest.h>

#include "random_cache.h"
#include "winnow/registry.h"

namespace winnow {
namespace {

using testing::RandomCache;
using testing::serial;

// A measurement on the processor that counts how often the rows are copied.
class CountingStatistics final : public EntryStatistics {
 public:
  CountingStatistics(const LayerView& view, const EvictionOptions& options) : view_(view), options_(options) {}

  std::optional<WindowStatistics> window(const StatisticsRows& rows, unsigned columns,
                                         std::span<const std::int32_t> n_columns) override {
    EXPECT_FALSE(rows.sees_all);
    LayerEvidence evidence(view_, options_, columns, serial());
    for (int h = 0; h < evidence.n_kv_head(); ++h) EXPECT_EQ(n_columns[h], evidence.n_prefix(h));
    return evidence.window(rows.n_rows);
  }
  std::optional<std::vector<std::vector<float>>> squares(const StatisticsRows&,
                                                         std::span<const std::int32_t>) override {
    return std::nullopt;
  }
  std::optional<std::vector<std::vector<float>>> fold(kernels::ColumnFold, const StatisticsRows&, const float*,
                                                      std::span<const kernels::EntryRange>) override {
    return std::nullopt;
  }
  std::vector<std::vector<double>> expected_scores(std::span<const double> mean,
                                                   std::span<const double> covariance) override {
    return LayerEvidence(view_, options_, 0, serial()).expected_scores(mean, covariance);
  }
  std::vector<std::vector<float>> norms(EntryNorm norm) override {
    LayerEvidence evidence(view_, options_, 0, serial());
    switch (norm) {
      case EntryNorm::kStoredKeyL2:
      case EntryNorm::kKeyL2:
        return evidence.key_l2_norms();
      case EntryNorm::kValueL1:
        return evidence.value_l1_norms();
      case EntryNorm::kValueL2:
        break;
    }
    return evidence.value_l2_norms();
  }
  std::optional<std::vector<std::vector<float>>> projected_value_norms() override {
    return LayerEvidence(view_, options_, 0, serial()).projected_value_norms();
  }
  std::vector<std::vector<float>> mean_key_cosines() override {
    return LayerEvidence(view_, options_, 0, serial()).mean_key_cosines();
  }
  std::vector<std::vector<double>> value_forms(std::vector<float>) override {
    ADD_FAILURE();
    return {};
  }
  // The engine asks for these, and scorers do not.
  RowAttention attend(const StatisticsRows&, bool) override {
    ADD_FAILURE();
    return {};
  }
  const std::vector<KeyOrigin>& origins() override {
    ADD_FAILURE();
    return none_;
  }
  EntryRows rows(int, std::span<const std::int32_t>) override {
    ADD_FAILURE();
    return {};
  }
  const float* output_projection() override { return view_.w_o; }
  const float* kept_queries(std::int32_t, int) override { return nullptr; }
  std::span<const ReconstructionPass> copied_passes(std::span<const ReconstructionPass> passes) override {
    return passes;
  }
  std::span<const kernels::HeadEntries> host_heads() override {
    ++n_copies;
    return view_.heads;
  }

  int n_copies = 0;

 private:
  const LayerView& view_;
  const EvictionOptions& options_;
  const std::vector<KeyOrigin> none_;
};

// The result of a cut of a cache whose rows have no address: the kept entries, and the copies of each layer's rows.
struct DistantCut {
  std::vector<LayerCut> layers = {};
  std::vector<int> n_copies = {};
};
DistantCut cut_distant(const RandomCache& cache, const EvictionOptions& options, std::int64_t total, bool is_distant,
                       const float* key_scales = nullptr) {
  Cut cut(options,
          {.heads = std::vector<int>(cache.n_layer, cache.n_kv_head), .n_tokens = cache.n_tokens, .total = total});
  DistantCut result;
  for (int l = 0; l < cache.n_layer; ++l) {
    cache.with_view(l, Cut::needs(options), [&](LayerView view) {
      view.key_scales = key_scales;
      CountingStatistics statistics(view, options);
      LayerView distant = view;
      std::vector<std::vector<kernels::EntryRun>> runs;
      std::vector<kernels::HeadEntries> heads;
      for (const kernels::HeadEntries& head : view.heads) {
        runs.emplace_back(head.runs.begin(), head.runs.end());
        for (kernels::EntryRun& run : runs.back()) run.keys = run.values = nullptr;
        heads.push_back({.runs = runs.back(), .n_entries = head.n_entries});
      }
      distant.heads = heads;
      distant.statistics = &statistics;
      distant.has_output_projection = true;
      distant.w_o = nullptr;
      for (LayerCut& of_layer : cut.add_layer(is_distant ? distant : view, serial())) {
        result.layers.push_back(std::move(of_layer));
      }
      result.n_copies.push_back(statistics.n_copies);
    });
  }
  return result;
}

std::vector<std::vector<std::vector<std::int32_t>>> kept(const DistantCut& cut) {
  std::vector<std::vector<std::vector<std::int32_t>>> kept;
  for (const LayerCut& layer : cut.layers) kept.push_back(layer.kept);
  return kept;
}

EvictionOptions parsed(const char* method) {
  EvictionOptions options = EvictionOptions::parse(method);
  options.set("window", "8");
  return options;
}

constexpr const char* kMeasured[] = {
    "snapkv",          "tova",          "pyramidkv",       "ada-snapkv", "cake", "lava", "vatp", "knorm", "random",
    "h2o:last-rows=6", "streaming-llm", "critical-snapkv", "keydiff"};

TEST(EntryStatistics, MethodsThatAreMeasuredCopyNoRows) {
  const RandomCache cache(3, 2, 2, 16, 80, 11);
  for (const char* method : kMeasured) {
    const EvictionOptions options = parsed(method);
    const DistantCut distant = cut_distant(cache, options, 30 * cache.n_heads(), true);
    EXPECT_EQ(distant.n_copies, std::vector<int>(3, 0)) << method;
    EXPECT_EQ(kept(distant), kept(cut_distant(cache, options, 30 * cache.n_heads(), false))) << method;
  }
}

TEST(EntryStatistics, KeysThatAreStoredMultipliedAreNotCopiedEither) {
  const RandomCache cache(3, 2, 2, 16, 80, 11);
  std::vector<float> scales;  // [n_kv_head][key_dim]
  for (int i = 0; i < 2 * 16; ++i) scales.push_back(i % 3 == 0 ? 0.25F : 8.0F);
  for (const char* method : {"knorm", "keydiff"}) {
    const EvictionOptions options = parsed(method);
    const DistantCut distant = cut_distant(cache, options, 30 * cache.n_heads(), true, scales.data());
    EXPECT_EQ(distant.n_copies, std::vector<int>(3, 0)) << method;
    EXPECT_EQ(kept(distant), kept(cut_distant(cache, options, 30 * cache.n_heads(), false, scales.data()))) << method;
    EXPECT_NE(kept(distant), kept(cut_distant(cache, options, 30 * cache.n_heads(), true))) << method;
  }
}

// A scorer of one's own that reads keys, twice.
class FirstNumber final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    LayerScores scores(evidence.n_kv_head());
    const auto d = static_cast<std::size_t>(evidence.layer().shape.key_dim);
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      std::vector<float> keys(static_cast<std::size_t>(evidence.n_prefix(h)) * d);
      evidence.read_keys(h, 0, evidence.n_prefix(h), keys.data());
      for (std::size_t i = 0; i < keys.size(); i += d) scores[h].push_back(keys[i]);
    }
    return scores;
  }
};

TEST(EntryStatistics, RowsAreCopiedOnceWhereTheyAreRead) {
  register_scorer("first-number", std::make_unique<FirstNumber>());
  const RandomCache cache(3, 2, 2, 16, 80, 11);
  EvictionOptions options = parsed("snapkv");
  options.set("scorer", "first-number");
  const DistantCut distant = cut_distant(cache, options, 30 * cache.n_heads(), true);
  EXPECT_EQ(distant.n_copies, std::vector<int>(3, 1));
  EXPECT_EQ(kept(distant), kept(cut_distant(cache, options, 30 * cache.n_heads(), false)));
}

}  // namespace
}  // namespace winnow
