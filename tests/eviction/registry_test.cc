// Parts and methods that a program registers.
#include "winnow/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eviction/options/option_table.h"
#include "eviction/options/registry.h"
#include "eviction/random_cache.h"
#include "expect_error.h"

namespace winnow {
namespace {

using test::expect_error;
using testing::RandomCache;
using testing::serial;

// A scorer by the stored position times a factor. It asks for the evidence that a built-in part could ask for.
class ByPosition final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions& options) const override {
    return {.window_rows = options.window, .window_columns = kWindowMax};
  }
  std::vector<Option> options() const override {
    return {number_option("factor", 0, 100, 2, "what positions are multiplied with"),
            choice_option("pool", {"none", "max", "avg"}, "max", "pooling along the tokens")};
  }
  LayerScores score(LayerEvidence& evidence, const EvictionOptions& options) const override {
    EXPECT_FALSE(evidence.window(options.window).max.empty());
    LayerScores scores(static_cast<std::size_t>(evidence.n_kv_head()));
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      const std::vector<std::int32_t> positions = evidence.positions(h);
      for (int i = 0; i < evidence.n_prefix(h); ++i) {
        scores[static_cast<std::size_t>(h)].push_back(
            static_cast<float>(options.number("factor") * positions[static_cast<std::size_t>(i)]));
      }
    }
    return scores;
  }
};

// An allocator that gives the first layer all entries.
class FirstLayer final : public LayerAllocator {
 public:
  std::vector<double> weights(const CutShape& shape, const EvictionOptions&) const override {
    std::vector<double> weights(shape.heads.size());
    weights.front() = 1;
    return weights;
  }
};

class EvenHeads final : public HeadAllocator {
 public:
  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    return std::vector<double>(static_cast<std::size_t>(request.ranking.n_kv_head()),
                               static_cast<double>(request.budget) / request.ranking.n_kv_head());
  }
};

class WorstFirst final : public Selector {
 public:
  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions&) const override {
    std::vector<std::int32_t> chosen(ranking.order.end() - budget, ranking.order.end());
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }
};

void register_once() {
  static const bool done = [] {
    register_scorer("by-position", std::make_unique<ByPosition>());
    register_layer_allocator("first-layer", std::make_unique<FirstLayer>());
    register_head_allocator("even-heads", std::make_unique<EvenHeads>());
    register_selector("worst-first", std::make_unique<WorstFirst>());
    register_method("latest", "snapkv:scorer=by-position,window=4", "the last tokens");
    return true;
  }();
  static_cast<void>(done);
}

TEST(Registry, AMethodOfAnotherProgramIsChosenByName) {
  register_once();
  EXPECT_EQ(EvictionOptions::parse("latest").scorer, "by-position");
  EXPECT_EQ(EvictionOptions::parse("latest").text(), "latest");
  EXPECT_EQ(EvictionOptions::parse("latest:factor=0.5").number("factor"), 0.5);
  EXPECT_EQ(EvictionOptions::parse("latest").number("factor"), 2);
  EXPECT_EQ(EvictionOptions::parse("latest:factor=0.5").text(), "latest:factor=0.5");
  EXPECT_EQ(EvictionOptions::parse("latest:factor=2.0").text(), "latest");
  EXPECT_EQ(eviction_methods().back().name, "latest");
  EXPECT_EQ(find_option("factor").used_by, "by-position");
  EXPECT_NE(find_option("pool").used_by.find("by-position"), std::string::npos);
  const EvictionOptions all =
      EvictionOptions::parse("latest:layers=first-layer,heads=even-heads,select=worst-first,sinks=1");
  EXPECT_EQ(EvictionOptions::parse(all.text()).text(), all.text());
  expect_error(ErrorCode::kInvalidArgument, "no part of this method reads the option 'factor'",
               [] { EvictionOptions::parse("snapkv:factor=3"); });  // no part reads it
  expect_error(ErrorCode::kInvalidArgument, "give number, 0 to 100",
               [] { EvictionOptions::parse("latest:factor=101"); });
  expect_error(ErrorCode::kNotFound, "by-position", [] { EvictionOptions::parse("latest:scorer=by-positron"); });
  expect_error(ErrorCode::kInvalidArgument, "raise it to 1",
               [] { EvictionOptions::parse("latest:window=0"); });  // the scorer reads the window's rows
}

TEST(Registry, ItsPartsSeeTheEvidenceOfOurs) {
  register_once();
  const int n = 40, n_layer = 2, n_kv_head = 2;
  const RandomCache cache(n_layer, n_kv_head, 2, 16, n, 1);
  const auto kept_of = [&](const char* method, std::int64_t total) {
    const EvictionOptions options = EvictionOptions::parse(method);
    Cut cut(options, {.heads = {n_kv_head, n_kv_head}, .n_tokens = n, .total = total});
    std::vector<std::vector<std::vector<std::int32_t>>> kept(n_layer);
    for (int l = 0; l < n_layer; ++l) {
      cache.with_view(l, Cut::needs(options), [&](const LayerView& view) {
        for (LayerCut& layer : cut.add_layer(view, serial())) kept[static_cast<std::size_t>(layer.layer)] = layer.kept;
      });
    }
    return kept;
  };
  std::vector<std::int32_t> last, first_and_window;
  for (std::int32_t i = n - 10; i < n; ++i) last.push_back(i);
  for (const auto& layer : kept_of("latest", 40)) {
    for (const auto& head : layer) EXPECT_EQ(head, last);
  }
  // 8 of 40 entries are protected in each layer. The other 24 are in the first layer, the 12 worst of each head.
  for (std::int32_t i = 0; i < 12; ++i) first_and_window.push_back(i);
  for (std::int32_t i = n - 4; i < n; ++i) first_and_window.push_back(i);
  const auto kept = kept_of("latest:layers=first-layer,heads=even-heads,select=worst-first", 40);
  for (const auto& head : kept[0]) EXPECT_EQ(head, first_and_window);
  for (const auto& head : kept[1]) EXPECT_EQ(head, std::vector<std::int32_t>({36, 37, 38, 39}));
}

// Parts whose answers are the `answer` of the test that runs.
struct Answer {
  std::function<void(LayerEvidence&)> reads;  // before there are scores
  std::function<LayerScores(LayerScores)> scores;
  std::function<std::vector<double>(std::vector<double>)> weights, shares;
  std::function<std::vector<std::int64_t>(std::vector<std::int64_t>)> ceilings;
  std::function<double(double)> measure;
  std::function<std::vector<std::int32_t>(std::vector<std::int32_t>)> chosen;
};
Answer answer;

template <class Change, class Value>
Value changed(const Change& change, Value value) {
  return change ? change(std::move(value)) : value;
}

class AnyScorer final : public Scorer {
 public:
  EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
  LayerScores score(LayerEvidence& evidence, const EvictionOptions&) const override {
    if (answer.reads) answer.reads(evidence);
    LayerScores scores;
    for (int h = 0; h < evidence.n_kv_head(); ++h) {
      scores.emplace_back(static_cast<std::size_t>(evidence.n_prefix(h)), 1.0F);
    }
    return changed(answer.scores, scores);
  }
};

class AnyWeights final : public LayerAllocator {
 public:
  std::vector<double> weights(const CutShape& shape, const EvictionOptions&) const override {
    return changed(answer.weights, std::vector<double>(shape.heads.size(), 1.0));
  }
};

class AnyMeasure final : public LayerAllocator {
 public:
  bool is_measured() const override { return true; }
  double measure(LayerEvidence&, const LayerScores&, const EvictionOptions&) const override {
    return changed(answer.measure, 1.0);
  }
};

class AnyHeads final : public HeadAllocator {
 public:
  std::vector<double> shares(const HeadRequest& request, const EvictionOptions&) const override {
    const int n = request.ranking.n_kv_head();
    return changed(answer.shares,
                   std::vector<double>(static_cast<std::size_t>(n), static_cast<double>(request.budget) / n));
  }
  std::vector<std::int64_t> ceilings(const HeadRequest& request, const EvictionOptions& options) const override {
    return changed(answer.ceilings, HeadAllocator::ceilings(request, options));
  }
};

class AnySelector final : public Selector {
 public:
  std::vector<std::int32_t> select(const HeadRanking& ranking, std::int64_t budget,
                                   const EvictionOptions&) const override {
    std::vector<std::int32_t> chosen(ranking.order.begin(), ranking.order.begin() + budget);
    std::sort(chosen.begin(), chosen.end());
    return changed(answer.chosen, chosen);
  }
};

TEST(Registry, WhatPartsAnswerIsChecked) {
  register_scorer("any-scorer", std::make_unique<AnyScorer>());
  register_layer_allocator("any-weights", std::make_unique<AnyWeights>());
  register_layer_allocator("any-measure", std::make_unique<AnyMeasure>());
  register_head_allocator("any-heads", std::make_unique<AnyHeads>());
  register_selector("any-selector", std::make_unique<AnySelector>());
  const RandomCache cache(2, 2, 2, 16, 40, 1);
  const auto cut = [&](const char* layers) {
    const EvictionOptions options = EvictionOptions::parse(
        std::string("snapkv:scorer=any-scorer,heads=any-heads,select=any-selector,window=4,layers=") + layers);
    RandomCache stored = cache;
    stored.cut(options, 80, false);
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const char* layers : {"any-weights", "any-measure"}) cut(layers);
  const auto expect_refused = [&](const char* layers, const char* message, const Answer& wrong) {
    answer = wrong;
    expect_error(ErrorCode::kInvalidArgument, message, [&] { cut(layers); });
    answer = {};
  };
  const auto expect_unsaved = [&](const char* need, const std::function<void(LayerEvidence&)>& read) {
    expect_refused("any-weights", (std::string("its needs() must ask for ") + need).c_str(), {.reads = read});
  };
  expect_unsaved("window_rows", [](LayerEvidence& evidence) { evidence.window(4); });
  expect_unsaved("reference_rows", [](LayerEvidence& evidence) { evidence.reference_rms(); });
  const auto expect_scores = [&](const char* message, const std::function<LayerScores(LayerScores)>& change) {
    expect_refused("any-weights", message, {.scores = change});
  };
  expect_scores("'any-scorer' gave 40 scores in layer 0, KV head 1: it must give 36", [](LayerScores scores) {
    scores[1].resize(40);
    return scores;
  });
  expect_scores("gave 18 scores in layer 0, KV head 0", [](LayerScores scores) {
    scores[0].resize(18);
    return scores;
  });
  expect_scores("gave 1 lists of scores", [](LayerScores scores) {
    scores.pop_back();
    return scores;
  });
  expect_scores("gave 0 lists of scores", [](const LayerScores&) { return LayerScores(); });
  using Numbers = std::vector<double>;
  for (const auto& [message, weights] :
       std::vector<std::pair<const char*, Numbers>>{{"gave 1 weights: it must give 2", {1}},
                                                    {"gave 0 weights", {}},
                                                    {"the weight -1", {-1, 2}},
                                                    {"the weight nan", {1, kNan}},
                                                    {"sum is infinite", {1e308, 1e308}}}) {
    expect_refused("any-weights", message, {.weights = [&](const Numbers&) { return weights; }});
  }
  for (const double measure : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
    expect_refused("any-measure", "the layer allocator 'any-measure'", {.measure = [&](double) { return measure; }});
  }
  for (const auto& [message, shares] :
       std::vector<std::pair<const char*, Numbers>>{{"gave 1 shares, one for each KV head: it must give 2", {32}},
                                                    {"add up to 64", {32, 32}},
                                                    {"a share of -5", {-5, 37}},
                                                    {"a share of nan", {kNan, 16}},
                                                    {"a share of 37", {37, -5}},
                                                    {"add up to 0", {0, 0}}}) {
    expect_refused("any-weights", message, {.shares = [&](const Numbers&) { return shares; }});
  }
  for (const auto& ceilings : std::vector<std::vector<std::int64_t>>{{1}, {-1, 5}, {37, 5}}) {
    expect_refused("any-measure", "the head allocator 'any-heads' gave",
                   {.ceilings = [&](const auto&) { return ceilings; }});
  }
  using Offsets = std::vector<std::int32_t>;
  for (const auto& change : std::vector<std::function<void(Offsets&)>>{
           [](Offsets& chosen) { chosen.pop_back(); }, [](Offsets& chosen) { chosen.push_back(35); },
           [](Offsets& chosen) { chosen[0] = -1; }, [](Offsets& chosen) { chosen.back() = 36; },
           [](Offsets& chosen) { chosen[1] = chosen[0]; }, [](Offsets& chosen) { std::swap(chosen[0], chosen[1]); }}) {
    expect_refused("any-weights", "the selector 'any-selector' gave", {.chosen = [&](Offsets chosen) {
                     change(chosen);
                     return chosen;
                   }});
  }
}

TEST(Registry, RefusesWhatWouldBeAmbiguous) {
  register_once();
  const auto scorer = [](const char* name) { register_scorer(name, std::make_unique<ByPosition>()); };
  for (const char* name : {"snapkv", "by-position"}) {
    expect_error(ErrorCode::kInvalidArgument, "already", [&] { scorer(name); });
  }
  for (const char* name : {"", "Own", "a=b", "a,b", "a:b", "two words"}) {
    expect_error(ErrorCode::kInvalidArgument, "lower-case", [&] { scorer(name); });
  }
  expect_error(ErrorCode::kInvalidArgument, "the scorer to register is null",
               [] { register_scorer("nothing", nullptr); });
  // The options exist with another default, with another range, and as an option of every method.
  class Other final : public Scorer {
   public:
    explicit Other(Option option) : option_(std::move(option)) {}
    EvidenceNeeds needs(const EvictionOptions&) const override { return {}; }
    std::vector<Option> options() const override { return {option_}; }
    LayerScores score(LayerEvidence&, const EvictionOptions&) const override { return {}; }

   private:
    Option option_;
  };
  for (const Option& option :
       {number_option("factor", 0, 100, 3, "what positions are multiplied with"),
        number_option("gamma", 0, 1, 0.5, "weight of the variance"), integer_option("window", 0, 9, 1, "another")}) {
    expect_error(ErrorCode::kInvalidArgument, "is already declared differently",
                 [&] { register_scorer("other", std::make_unique<Other>(option)); });
  }
  expect_error(ErrorCode::kNotFound, "there is no scorer", [] { EvictionOptions::parse("snapkv:scorer=other"); });
  expect_error(ErrorCode::kInvalidArgument, "already", [] { register_method("snapkv", "lava", "taken"); });
  expect_error(ErrorCode::kInvalidArgument, "keeps everything", [] { register_method("all", "full", "keeps all"); });
  expect_error(ErrorCode::kNotFound, "no-such-method", [] { register_method("new", "no-such-method", "unknown"); });
}

}  // namespace
}  // namespace winnow
