#include "eviction/cut/cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "eviction/cut/fitting_window.h"
#include "eviction/options/registry.h"
#include "eviction/random_cache.h"
#include "expect_error.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using testing::Kept;
using testing::RandomCache;
using testing::serial;

// Returns presets and combinations that need only the window's rows, entries and W_O.
const std::vector<std::string>& window_methods() {
  static const std::vector<std::string> methods = {
      "streaming-llm:window=5",
      "random:window=5,seed=3",
      "random:window=0,layers=pyramid",
      "tova:window=5",
      "tova:window=5,layers=pyramid,heads=flat",
      "snapkv:window=5",
      "snapkv:window=5,sinks=3,rows=sum,order=group-then-pool",
      "snapkv:window=5,layers=global,heads=global",
      "snapkv:window=5,layers=global,heads=global,floor=0",
      "snapkv:window=5,layers=global,heads=global,floor=3,sinks=2",
      "snapkv:window=5,layers=global,heads=global,select=critical",
      "pyramidkv",
      "ada-snapkv:window=5",
      "ada-snapkv:window=5,sinks=2,safeguard=minimum,alpha=0.5",
      "critical-ada-snapkv:window=5",
      "lava:window=5",
      "lava:window=5,heads=ada,sinks=2",
      "lava:window=5,heads=ada,safeguard=minimum,alpha=0.7",
      "lava:window=5,heads=ada,select=critical",
      "lava:window=5,heads=uniform",
      "cake:window=5",
      "cake:window=5,heads=flat,select=critical,tau1=0.4",
      "vatp:window=5",
      "knorm:window=5",
      "keydiff:window=5,heads=ada",
  };
  return methods;
}

struct Shape {
  int n_layer, n_kv_head, n_group, head_dim;
  std::int32_t n_tokens;
  double contrast;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> list = {{1, 1, 1, 8, 40, 1}, {3, 2, 2, 8, 61, 1},  {4, 3, 1, 16, 50, 3},
                                          {6, 2, 3, 8, 33, 5}, {5, 1, 4, 8, 47, 10}, {7, 4, 1, 8, 29, 4}};
  return list;
}

std::int64_t sum(const std::vector<std::vector<std::int32_t>>& budgets) {
  std::int64_t n = 0;
  for (const auto& layer : budgets) n = std::accumulate(layer.begin(), layer.end(), n);
  return n;
}

// Returns the smallest total that the method accepts.
std::int64_t least_total(const RandomCache& cache, const EvictionOptions& options) {
  return std::min<std::int64_t>(cache.n_tokens, options.window + options.sinks) * cache.n_heads();
}

TEST(Cut, KeepsExactlyTheBudgetAndTheProtectedEntries) {
  unsigned seed = 1;
  for (const Shape& s : shapes()) {
    for (const std::string& method : window_methods()) {
      const EvictionOptions options = EvictionOptions::parse(method);
      const RandomCache whole(s.n_layer, s.n_kv_head, s.n_group, s.head_dim, s.n_tokens, ++seed, s.contrast);
      const std::int64_t least = least_total(whole, options), all = s.n_tokens * whole.n_heads();
      for (const std::int64_t total : {least, least + 1, (3 * least + all) / 4, (least + all) / 2, all - 1}) {
        RandomCache cache = whole;
        const CutReport report = cache.cut(options, total, false);
        ASSERT_EQ(cache.n_stored(), total) << method;
        ASSERT_EQ(sum(report.budget), total) << method;
        for (int l = 0; l < s.n_layer; ++l) {
          for (int h = 0; h < s.n_kv_head; ++h) {
            const std::vector<std::int32_t>& kept = cache.stored[l][h];
            ASSERT_EQ(std::ssize(kept), report.budget[l][h]) << method;
            ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end()));
            for (std::int32_t p = 0; p < s.n_tokens; ++p) {
              if (p >= options.sinks && p < s.n_tokens - options.window) continue;
              ASSERT_TRUE(std::binary_search(kept.begin(), kept.end(), p)) << method << " lost protected token " << p;
            }
          }
        }
      }
    }
  }
}

TEST(Cut, CascadeEqualsOneShot) {
  unsigned seed = 1000;
  int n_clamped = 0;
  for (int round = 0; round < 6; ++round) {
    for (const Shape& s : shapes()) {
      for (const std::string& method : window_methods()) {
        const EvictionOptions options = EvictionOptions::parse(method);
        RandomCache staged(s.n_layer, s.n_kv_head, s.n_group, s.head_dim, s.n_tokens, ++seed, s.contrast);
        RandomCache one_shot = staged;
        const std::int64_t least = least_total(staged, options), all = s.n_tokens * staged.n_heads();
        const std::int64_t total = least + static_cast<std::int64_t>(seed * 2654435761U % 1000) * (all - least) / 1000;
        std::int64_t most_stored = 0;
        const CutReport a = staged.cut(options, total, false, &most_stored);
        const CutReport b = one_shot.cut(options, total, true);
        ASSERT_EQ(staged.stored, one_shot.stored) << method << " total " << total;
        ASSERT_EQ(a.budget, b.budget) << method;
        ASSERT_EQ(a.layer_share, b.layer_share) << method;
        // One layer is stored besides the total; a stage rounds up by less than one entry per head and one per layer.
        ASSERT_LE(most_stored, total + std::int64_t{s.n_kv_head} * s.n_tokens + 2 * staged.n_heads()) << method;
        ASSERT_EQ(a.stage_stored.size(), static_cast<std::size_t>(total < all ? s.n_layer : 0));
        const double cap = static_cast<double>(s.n_tokens - options.window - options.sinks) * s.n_kv_head;
        for (const double share : a.layer_share) n_clamped += share >= cap - 1e-9 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(n_clamped, 50);  // caps were reached
}

// A cut that is narrowed equals the cut to the smaller total. It may be narrowed any number of times.
TEST(Cut, NarrowedEqualsTheSmallerCut) {
  unsigned seed = 2000;
  for (const Shape& s : shapes()) {
    for (const std::string& method : window_methods()) {
      const EvictionOptions options = EvictionOptions::parse(method);
      const RandomCache fresh(s.n_layer, s.n_kv_head, s.n_group, s.head_dim, s.n_tokens, ++seed, s.contrast);
      const std::int64_t least = least_total(fresh, options), candidates = fresh.n_stored() - least;
      RandomCache cache = fresh;
      Cut cut(options, {.heads = std::vector<int>(s.n_layer, s.n_kv_head),
                        .n_tokens = s.n_tokens,
                        .total = least + candidates * 2 / 3});
      cut.allow_narrowing();
      cache.run(cut, options);
      ASSERT_EQ(cut.n_protected(), least) << method;
      for (const int tenths : {2, 5, 0, 2}) {
        const std::int64_t total = least + candidates * tenths / 10;
        RandomCache direct = fresh, narrowed = cache;
        direct.cut(options, total, false);
        for (const LayerCut& layer_cut : cut.narrowed(total, 0, serial())) {
          for (int h = 0; h < s.n_kv_head; ++h) {
            std::vector<std::int32_t> survivors;
            for (const std::int32_t i : layer_cut.kept[h]) survivors.push_back(cache.stored[layer_cut.layer][h].at(i));
            narrowed.stored[layer_cut.layer][h] = survivors;
          }
        }
        EXPECT_EQ(narrowed.stored, direct.stored) << method << " " << tenths;
      }
    }
  }
}

TEST(Cut, AShortPromptIsKeptWholeByEveryMethod) {
  for (const std::string& method : window_methods()) {
    const EvictionOptions options = EvictionOptions::parse(method);
    RandomCache cache(2, 2, 1, 8, 20, 5);
    const CutReport report = cache.cut(options, 20 * cache.n_heads(), false);
    EXPECT_EQ(cache.n_stored(), 20 * cache.n_heads());
    EXPECT_EQ(sum(report.budget), 20 * cache.n_heads());
  }
  Cut full(EvictionOptions{}, {.heads = {2, 2}, .n_tokens = 100, .total = 4});
  EXPECT_TRUE(full.keeps_everything());
}

TEST(Cut, RecutsARaggedCacheToTheExactTotal) {
  unsigned seed = 50;
  for (const std::string& method : window_methods()) {
    const EvictionOptions options = EvictionOptions::parse(method);
    RandomCache cache(4, 3, 2, 8, 60, ++seed, 4);
    cache.cut(options, 40 * cache.n_heads(), false);
    const Kept before = cache.stored;
    const CutReport report = cache.cut(options, 25 * cache.n_heads() + 1, true);
    EXPECT_EQ(cache.n_stored(), 25 * cache.n_heads() + 1) << method;
    EXPECT_EQ(sum(report.budget), cache.n_stored()) << method;
    for (int l = 0; l < 4; ++l) {
      for (int h = 0; h < 3; ++h) {
        EXPECT_TRUE(std::includes(before[l][h].begin(), before[l][h].end(), cache.stored[l][h].begin(),
                                  cache.stored[l][h].end()));
      }
    }
  }
}

TEST(Cut, RandomKeepsTheSameTokensWhateverTheWay) {
  const EvictionOptions options = EvictionOptions::parse("random:window=5");
  RandomCache once(3, 2, 1, 8, 60, 9);
  RandomCache twice = once;
  once.cut(options, 20 * once.n_heads(), false);
  twice.cut(options, 40 * once.n_heads(), false);
  twice.cut(options, 20 * once.n_heads(), true);
  EXPECT_EQ(once.stored, twice.stored);
  RandomCache other(3, 2, 1, 8, 60, 9);
  other.cut(EvictionOptions::parse("random:window=5,seed=1"), 20 * once.n_heads(), false);
  EXPECT_NE(once.stored, other.stored);
}

TEST(Cut, FixedBudgetsCutEveryHeadBackToItsOwn) {
  const EvictionOptions options = EvictionOptions::parse("cake:window=5");
  RandomCache cache(3, 2, 2, 8, 60, 11, 3);
  const CutReport first = cache.cut(options, 30 * cache.n_heads(), false);
  std::vector<std::int32_t> budgets;
  for (const auto& layer : first.budget) {
    for (const std::int32_t b : layer) budgets.push_back(b - 1);
  }
  Cut cut(options,
          {.heads = {2, 2, 2}, .n_tokens = 60, .total = 0, .stored = cache.n_stored(), .fixed_budget = budgets});
  const CutReport report = cache.run(cut, options);
  for (int l = 0; l < 3; ++l) {
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(std::ssize(cache.stored[l][h]), std::max(5, first.budget[l][h] - 1));
      EXPECT_EQ(std::ssize(cache.stored[l][h]), report.budget[l][h]);
    }
  }
}

TEST(Cut, StreamingLlmKeepsSinksAndTheMostRecent) {
  RandomCache cache(2, 2, 1, 8, 50, 3);
  cache.cut(EvictionOptions::parse("streaming-llm:window=5,sinks=2"), 10 * cache.n_heads(), false);
  for (const auto& layer : cache.stored) {
    for (const auto& head : layer) {
      EXPECT_EQ(head, (std::vector<std::int32_t>{0, 1, 42, 43, 44, 45, 46, 47, 48, 49}));
    }
  }
}

TEST(Cut, EqualScoresGoToTheLaterTokens) {
  RandomCache cache(1, 2, 1, 8, 30, 3);
  for (auto& keys : cache.keys) std::fill(keys.begin(), keys.end(), 0.5F);  // all attention weights are equal
  cache.cut(EvictionOptions::parse("snapkv:window=4,heads=flat"), 2 * 4 + 5, false);
  // The best five candidates are tokens 25, 25, 24, 24 and, by the rule for ties, head 0's token 23.
  EXPECT_EQ(cache.stored[0][0], (std::vector<std::int32_t>{23, 24, 25, 26, 27, 28, 29}));
  EXPECT_EQ(cache.stored[0][1], (std::vector<std::int32_t>{24, 25, 26, 27, 28, 29}));
}

// Ada-KV, Theorem 3.1: the flat allocation keeps the most attention, and so minimises the bound.
TEST(Cut, FlatBudgetsMinimiseAdasBound) {
  const EvictionOptions options = EvictionOptions::parse("snapkv:window=4,pool=none,heads=flat");
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomCache cache(1, 2, 1, 8, 20, seed, 1);
    LayerScores scores;
    cache.with_view(0, Cut::needs(options), [&](const LayerView& view) {
      LayerEvidence evidence(view, options, Cut::needs(options).window_columns, serial());
      scores = find_scorer("snapkv").score(evidence, options);
    });
    const std::int64_t shared = 9;
    cache.cut(options, shared + 2 * 4, false);
    const auto kept_mass = [&](int h, std::int64_t b) {
      std::vector<float> sorted = scores[h];
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      return std::accumulate(sorted.begin(), sorted.begin() + b, 0.0);
    };
    double best = 0;
    for (std::int64_t b = 0; b <= shared; ++b) best = std::max(best, kept_mass(0, b) + kept_mass(1, shared - b));
    const std::int64_t chosen = std::ssize(cache.stored[0][0]) - 4;
    EXPECT_NEAR(kept_mass(0, chosen) + kept_mass(1, shared - chosen), best, 1e-7);
  }
}

// Some heads have no score among the best of the model, but each keeps its own best ones.
TEST(Cut, AGlobalRankingLeavesEveryHeadItsFloor) {
  const auto kept_of = [](const std::string& method, std::int64_t per_head) {
    RandomCache cache(4, 3, 1, 8, 60, 5);
    for (std::size_t i = 0; i < cache.queries.size(); ++i) {  // layers 2 and 3 attend to all tokens alike
      if (i >= 2) std::fill(cache.queries[i].begin(), cache.queries[i].end(), 0.0F);
    }
    cache.cut(EvictionOptions::parse(method + ",window=5,pool=none,layers=global,heads=global"),
              per_head * cache.n_heads(), false);
    EXPECT_EQ(cache.n_stored(), per_head * cache.n_heads());
    std::size_t least = 60;
    for (const auto& layer : cache.stored) {
      for (const auto& head : layer) least = std::min(least, head.size());
    }
    return least;
  };
  EXPECT_EQ(kept_of("snapkv:floor=0", 15), 5u);
  EXPECT_EQ(kept_of("snapkv:floor=3", 15), 8u);
  EXPECT_EQ(kept_of("snapkv:floor=8", 15), 13u);
  EXPECT_EQ(kept_of("snapkv:floor=8", 7), 7u) << "a floor above the budget is the budget";
}

TEST(FittingWindow, IsHalfOfWhatTheSinksLeaveOfTheBudget) {
  const auto window_of = [](const char* method, std::int64_t per_head, std::int32_t n_tokens = 100) {
    const CutShape shape{.heads = {2, 2, 2}, .n_tokens = n_tokens, .total = per_head * 6};
    return with_fitting_window(EvictionOptions::parse(method), shape).window;
  };
  for (const std::int64_t per_head : {8, 20, 27}) {
    EXPECT_EQ(window_of("snapkv:window=24,sinks=4", per_head), (per_head - 4) / 2);
    EXPECT_EQ(window_of("kvzip:window=24", per_head), (per_head - 4) / 2);
    EXPECT_EQ(window_of("streaming-llm:window=24", per_head), (per_head - 4) / 2);
  }
  EXPECT_EQ(window_of("snapkv:window=24,sinks=4", 28), 24) << "it fits";
  EXPECT_EQ(window_of("snapkv:window=24,sinks=4", 20, 20), 24) << "nothing is cut";
  // A window has the least that the scorer needs; the cut then reports the least budget.
  EXPECT_EQ(window_of("snapkv:window=24,sinks=4", 3), 1);
  EXPECT_EQ(window_of("cake:window=24,sinks=4", 5), 2);
  EXPECT_EQ(window_of("knorm:window=24,sinks=4", 4), 0);
}

TEST(FittingWindow, CutsKeepTheBudgetSinksAndWindow) {
  for (const char* method : {"snapkv:window=24,sinks=4", "cake:window=24,sinks=4", "knorm:window=24,sinks=4",
                             "snapkv:window=24,sinks=4,layers=global,heads=global"}) {
    for (const std::int64_t per_head : {6, 8, 20, 27}) {
      RandomCache cache(3, 2, 2, 8, 100, 8), asked = cache;
      const CutShape shape{.heads = {2, 2, 2}, .n_tokens = 100, .total = per_head * cache.n_heads()};
      const EvictionOptions options = with_fitting_window(EvictionOptions::parse(method), shape);
      // The session's own window has more rows than the options now ask for.
      Cut cut(options, shape);
      cache.run(cut, EvictionOptions::parse(method));
      EXPECT_EQ(cache.n_stored(), shape.total) << method;
      asked.cut(options, shape.total, false);
      EXPECT_EQ(cache.stored, asked.stored) << method << ", as if the window had been asked for";
      for (const auto& layer : cache.stored) {
        for (const auto& head : layer) {
          EXPECT_EQ(head[3], 3) << method;
          for (int i = 1; i <= options.window; ++i) EXPECT_EQ(head[head.size() - std::size_t(i)], 100 - i) << method;
        }
      }
    }
  }
}

TEST(Cut, ABudgetBelowWhatIsProtectedIsRefusedWithTheLeast) {
  const EvictionOptions options = EvictionOptions::parse("snapkv:window=8,sinks=4");
  for (const std::int64_t total : {0, 1, 12 * 6 - 1}) {
    try {
      Cut cut(options, {.heads = {2, 2, 2}, .n_tokens = 100, .total = total});
      ADD_FAILURE() << total << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("at least 12 tokens"), std::string::npos) << error.what();
    }
  }
  EXPECT_NO_THROW(Cut(options, {.heads = {2, 2, 2}, .n_tokens = 100, .total = 72}));
  EXPECT_NO_THROW(Cut(options, {.heads = {2, 2, 2}, .n_tokens = 10, .total = 60}));  // N <= B
  test::expect_error(ErrorCode::kInvalidArgument, "below the 60 that are always kept", [&] {
    Cut(options, {.heads = {2, 2, 2}, .n_tokens = 10, .total = 59});
  });
  test::expect_error(ErrorCode::kInvalidArgument, "of the prompt's 10 tokens", [&] {
    Cut(options, {.heads = {2, 2, 2}, .n_tokens = 10, .total = 59});
  });
}

TEST(Cut, ANaNIsAnErrorThatNamesLayerAndHead) {
  for (const char* method : {"snapkv:window=5", "lava:window=5", "cake:window=5", "knorm:window=5", "keydiff:window=5",
                             "vatp:window=5", "critical-snapkv:window=5"}) {
    const EvictionOptions options = EvictionOptions::parse(method);
    RandomCache cache(3, 2, 1, 8, 40, 4);
    cache.keys[1][(40 + 7) * 8] = std::numeric_limits<float>::quiet_NaN();
    cache.values[1][(40 + 7) * 8] = std::numeric_limits<float>::quiet_NaN();
    try {
      cache.cut(options, 20 * cache.n_heads(), false);
      ADD_FAILURE() << method << " ranked a NaN";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("layer 1, KV head 1"), std::string::npos) << error.what();
    }
  }
}

TEST(Cut, ANaNInTheQueriesIsAnErrorToo) {
  for (const char* method : {"snapkv:window=5", "tova:window=5", "cake:window=5"}) {
    const EvictionOptions options = EvictionOptions::parse(method);
    RandomCache cache(3, 2, 1, 8, 40, 4);
    cache.queries[2][(39 * 2 + 1) * 8] = std::numeric_limits<float>::infinity();  // the last row, head 1
    try {
      cache.cut(options, 20 * cache.n_heads(), false);
      ADD_FAILURE() << method << " took it";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("layer 2, KV head 1"), std::string::npos) << error.what();
    }
  }
}

TEST(Cut, TablesShareOverAllHeadsOfTheModel) {
  EvictionOptions options = EvictionOptions::parse("snapkv:window=5");
  options.layers = options.heads = "headkv";
  auto importance = std::make_shared<HeadImportance>();
  *importance = {.weight = {{1, 1}, {1, 1}, {1, 5}}};
  options.importance = importance;
  RandomCache cache(3, 2, 1, 8, 60, 4);
  const CutReport report = cache.cut(options, 20 * cache.n_heads(), false);
  EXPECT_EQ(sum(report.budget), 20 * cache.n_heads());
  EXPECT_GT(report.budget[2][1], 2 * report.budget[2][0]);
  EXPECT_EQ(report.budget[0], report.budget[1]);
  RandomCache other(2, 2, 1, 8, 60, 4);
  test::expect_error(ErrorCode::kInvalidArgument, "for 3 layers, but the model has 2",
                     [&] { other.cut(options, 20 * other.n_heads(), false); });
}

// Retrieval heads are kept whole in the order of their importance, until the total is spent. The others keep their
// protected entries.
TEST(Cut, DuoAttentionKeepsTheImportantHeadsWhole) {
  EvictionOptions options = EvictionOptions::parse("streaming-llm:window=5,sinks=2");
  options.layers = options.heads = "duo-attention";
  auto importance = std::make_shared<HeadImportance>();
  *importance = {.weight = {{1, 7}, {1, 0}, {9, 5}}};
  options.importance = importance;
  for (const bool is_recut : {false, true}) {
    RandomCache cache(3, 2, 1, 8, 60, 4);
    const CutReport report = cache.cut(options, 6 * 7 + 53 + 53 + 20, is_recut);
    EXPECT_EQ(report.budget, (std::vector<std::vector<std::int32_t>>{{7, 60}, {7, 7}, {60, 27}})) << is_recut;
  }
}

TEST(Cut, NeedsAreTheUnionOfTheParts) {
  EXPECT_EQ(Cut::needs(EvictionOptions{}).window_rows, 0);
  EXPECT_EQ(Cut::needs(EvictionOptions::parse("streaming-llm")).window_rows, 0);
  EXPECT_EQ(Cut::needs(EvictionOptions::parse("tova")).window_rows, 1);
  EXPECT_EQ(Cut::needs(EvictionOptions::parse("tova:layers=cake")).window_rows, 32);
  EXPECT_EQ(Cut::needs(EvictionOptions::parse("snapkv:window=16")).window_rows, 16);
  EXPECT_FALSE(Cut::needs(EvictionOptions::parse("snapkv")).output_projection);
  EXPECT_TRUE(Cut::needs(EvictionOptions::parse("critical-snapkv")).output_projection);
  EXPECT_TRUE(Cut::needs(EvictionOptions::parse("h2o")).log_sum_exp);
  EXPECT_TRUE(Cut::needs(EvictionOptions::parse("expected-attention")).query_moments);
}

}  // namespace
}  // namespace winnow
