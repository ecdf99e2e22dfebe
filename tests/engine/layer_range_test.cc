// A model whose layers are computed in two ranges, as by two machines, gives the bits of one that is computed whole.
#include <ggml.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "engine/engine_test_support.h"
#include "engine/forward.h"

namespace winnow {
namespace {

constexpr int kModelLayers = 4;

std::vector<Token> prompt(std::int32_t n) {
  std::vector<Token> tokens;
  for (std::int32_t i = 0; i < n; ++i) tokens.push_back((7 * i + 3) % 50);
  return tokens;
}

// A sequence that is fed through the layer ranges [0, cut) and [cut, kModelLayers).
class SplitModel {
 public:
  SplitModel(Engine::Impl& engine, int cut, int n_together)
      : engine_(engine),
        n_together_(n_together),
        ranges_{{.first = 0, .last = cut}, {.first = cut, .last = kModelLayers}},
        cache_(session_shape(), engine.pool),
        state_(engine.model->impl().spec, engine.pool),
        evidence_({}, engine.model->impl().spec, engine.layers) {}

  std::vector<float> feed(std::span<const Token> tokens) {
    const auto n = static_cast<std::int32_t>(tokens.size());
    cache_.extend_all(n, n_tokens_);
    CacheSink sink(cache_);
    std::vector<float> between;
    std::vector<float> logits;
    for (const LayerRange& range : ranges_) {
      const ForwardPlan plan{.layers = range,
                             .tokens = tokens,
                             .first_position = n_tokens_,
                             .n_batch = engine_.options.n_batch,
                             .n_together = n_together_,
                             .is_awaited = true};
      ForwardPass pass(*engine_.executor, engine_.model->impl().spec, plan, sink, state_, {&evidence_});
      std::copy(between.begin(), between.end(), pass.hidden().begin());
      std::vector<int> ended;
      while (!pass.is_through()) {
        if (const auto layer = pass.step()) ended.push_back(*layer);
      }
      std::vector<int> in_order(static_cast<std::size_t>(range.size()));
      std::iota(in_order.begin(), in_order.end(), range.first);
      EXPECT_EQ(ended, in_order);
      EXPECT_EQ(pass.work_done(), pass.work_total());
      between.assign(pass.hidden().begin(), pass.hidden().end());
      if (range.last == kModelLayers) logits = pass.read_logits(nullptr);
    }
    n_tokens_ += n;
    return logits;
  }

  std::vector<float> decode(Token token) {
    cache_.extend_all(1, n_tokens_);
    const StepSequence sequence{.cache = &cache_, .evidence = &evidence_, .state = &state_, .position = n_tokens_};
    std::vector<float> between(static_cast<std::size_t>(engine_.model->impl().spec.n_embd));
    CpuExecutor& executor = test::cpu_executor(engine_);
    executor.embed(std::span(&token, 1), between.data());
    std::vector<float> logits;
    for (const LayerRange& range : ranges_) {
      StepGraph step(engine_.model->impl(), range, 1, executor.compute());
      step.positions[0] = n_tokens_;
      step.hidden = between;
      step.attention.plan(std::span(&sequence, 1));
      executor.compute().run(step.graph);
      between = step.hidden;
      EXPECT_EQ(step.logits != nullptr, range.last == kModelLayers);
      if (step.logits == nullptr) continue;
      const auto* row = static_cast<const float*>(step.logits->data);
      logits.assign(row, row + engine_.model->impl().spec.n_vocab);
    }
    ++n_tokens_;
    return logits;
  }

 private:
  CacheShape session_shape() const {
    CacheShape shape{.key_type = EntryType::kF32, .value_type = EntryType::kF32};
    for (const LayerSpec& layer : engine_.model->impl().spec.layers) {
      shape.layers.push_back({.n_kv_head = layer.n_kv_head, .key_dim = layer.key_dim, .value_dim = layer.value_dim});
    }
    return shape;
  }

  Engine::Impl& engine_;
  const int n_together_;
  std::vector<LayerRange> ranges_;
  RaggedCache cache_;
  RecurrentState state_;
  QueryEvidence evidence_;
  std::int32_t n_tokens_ = 0;
};

TEST(LayerRange, TwoRangesGiveTheBitsOfTheWholeModel) {
  const auto model = test::tiny_model({.n_layer = kModelLayers});
  const auto engine = Engine::create(model, {.n_threads = 2, .n_batch = 32});
  ASSERT_EQ(engine->impl().layers, (LayerRange{.first = 0, .last = kModelLayers}));
  for (const auto& [cut, n_together] : {std::pair{1, 1}, {1, 2}, {3, 1}, {3, 2}, {3, 3}}) {
    Session whole = engine->open(test::full_options());
    SplitModel split(engine->impl(), cut, n_together);
    whole.append(prompt(200));
    EXPECT_EQ(split.feed(prompt(200)), test::logits_of(whole));
    for (const Token token : {5, 9, 11}) {
      whole.decode(token);
      EXPECT_EQ(split.decode(token), test::logits_of(whole));
    }
    whole.append(prompt(50));
    EXPECT_EQ(split.feed(prompt(50)), test::logits_of(whole));
  }
}

}  // namespace
}  // namespace winnow
