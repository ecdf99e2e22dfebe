// Parts and methods that a program registers.
#include "winnow/registry.h"

#include <gtest/gtest.h>

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
