// An executor that counts its calls and computes nothing. The engine reads prompts, cuts and decodes with it as with
// this machine's, and its plans are complete.
#include "engine/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/engine_test_support.h"

namespace winnow::test {
namespace {

struct Counts {
  std::map<int, std::int64_t> rows_of_layer;  // rows that went through the layer
  std::map<int, std::int64_t> copied, begun;  // rows whose hidden states are copied to others, and these others
  std::map<int, std::int64_t> read;           // rows whose hidden states after the layer are read
  std::int64_t batches = 0, embedded = 0, stored = 0, steps = 0, outputs = 0;
  std::int32_t most_rows = 0;
};

// Stores zeros, since every executor has to store entries.
void clear_rows(const CacheShape& shape, const LayerSpec& layer, std::byte* key, std::byte* value) {
  std::memset(key, 0, row_bytes(shape.plain().key_type, layer.key_dim));
  std::memset(value, 0, row_bytes(shape.plain().value_type, layer.value_dim));
}

class CountingRows final : public PassRows {
 public:
  CountingRows(Counts& counts, const PassPlan& plan, const ModelSpec& spec)
      : counts_(counts), plan_(plan), spec_(spec), hidden_(static_cast<std::size_t>(plan.n_rows * spec.n_embd)) {}

  void embed(std::int32_t first_row, std::span<const Token> tokens) override {
    EXPECT_LE(first_row + std::ssize(tokens), plan_.n_rows);
    counts_.embedded += std::ssize(tokens);
  }
  void run_layer(const LayerPlan& plan) override {
    const LayerSpec& layer = spec_.layer(plan.layer);
    EXPECT_GE(plan.layer, plan_.layers.first);
    EXPECT_LT(plan.layer, plan_.layers.last);
    EXPECT_LE(plan.rows.first_row + plan.rows.n_rows, plan_.n_rows);
    ++counts_.batches;
    counts_.rows_of_layer[plan.layer] += plan.rows.n_rows;
    if (plan.copied_to >= 0) {
      EXPECT_LE(plan.copied_to + plan.rows.n_rows, plan_.n_rows);
      counts_.copied[plan.layer] += plan.rows.n_rows;
    }
    if (plan.is_output_read) counts_.read[plan.layer] += plan.rows.n_rows;
    if (plan.begins_here) counts_.begun[plan.layer] += plan.rows.n_rows;
    counts_.most_rows = std::max(counts_.most_rows, plan.rows.n_rows);
    EntrySink& entries = *plan_.entries;
    entries.begin_rows(plan.layer, plan.rows.first_position, plan.rows.n_rows);
    for (int h = 0; h < layer.n_kv_head; ++h) {
      const EntrySink::Head head = entries.head(h);
      EXPECT_GE(head.entries.n_entries, head.n_before + plan.rows.n_rows);
      for (std::int32_t r = 0; r < plan.rows.n_rows; ++r, ++counts_.stored) {
        clear_rows(entries.shape(), layer, entries.key_row(h, head.n_before + r),
                   entries.value_row(h, head.n_before + r));
      }
    }
  }
  std::span<float> hidden() override { return hidden_; }
  std::size_t bytes() const override { return hidden_.size() * sizeof(float); }

 private:
  Counts& counts_;
  const PassPlan plan_;
  const ModelSpec& spec_;
  std::vector<float> hidden_;
};

class CountingExecutor final : public Executor {
 public:
  CountingExecutor(Counts& counts, const ModelSpec& spec) : counts_(counts), spec_(spec) {}

  ParallelFor parallel_for() override {
    return [](int n_items, const std::function<void(int)>& body) {
      for (int i = 0; i < n_items; ++i) body(i);
    };
  }
  std::unique_ptr<PassRows> begin_pass(const PassPlan& plan) override {
    return std::make_unique<CountingRows>(counts_, plan, spec_);
  }
  bool converts_weights(std::int32_t) const override { return false; }
  void reserve_step(int n_sequences) override { hidden_.resize(static_cast<std::size_t>(n_sequences * spec_.n_embd)); }
  std::span<float> begin_step(const DecodePlan& plan) override {
    EXPECT_EQ(plan.sequences.size(), plan.tokens.size());
    for (const StepSequence& sequence : plan.sequences) {
      RaggedCache& cache = *sequence.cache;
      for (int l = 0; l < spec_.n_layer(); ++l) {
        const LayerSpec& layer = spec_.layer(l);
        for (int h = 0; h < layer.n_kv_head; ++h) {
          const std::int32_t entry = cache.n_entries(l, h) - 1;
          clear_rows(cache.shape(), layer, cache.key_row(l, h, entry), cache.value_row(l, h, entry));
        }
      }
    }
    logits_.assign(plan.tokens.size() * static_cast<std::size_t>(spec_.n_vocab), 0.25F);
    return hidden_;
  }
  std::span<const float> run_step() override {
    ++counts_.steps;
    return logits_;
  }
  std::vector<float> await_logits(int) override { return {}; }
  void release_step() override {}
  void output_logits(float*, int n_rows, float* out) override {
    std::fill_n(out, std::int64_t{n_rows} * spec_.n_vocab, 0.5F);
    counts_.outputs += n_rows;
  }
  void output_hidden(float*, int n_rows, float* out) override {
    std::fill_n(out, std::int64_t{n_rows} * spec_.n_embd, 0.0F);
  }
  std::vector<float> output_projection(int layer) override {
    const LayerSpec& spec = spec_.layer(layer);
    return std::vector<float>(static_cast<std::size_t>(spec.output_size() * spec_.n_embd));
  }
  std::size_t bytes() const override { return 0; }

 private:
  Counts& counts_;
  const ModelSpec& spec_;
  std::vector<float> hidden_, logits_;
};

class ExecutorTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExecutorTest, CarriesOutAPromptItsCutAndDecoding) {
  constexpr int kLayers = 3, kHeads = 2, kPrompt = 230, kBatch = 64, kBudget = 50;
  Counts counts;
  const auto engine = Engine::create(tiny_model({.n_layer = kLayers, .n_head = 4, .n_kv_head = kHeads}),
                                     {.n_threads = 1, .n_batch = kBatch});
  const ModelSpec& spec = engine->impl().model->impl().spec;
  engine->impl().executor = std::make_unique<CountingExecutor>(counts, spec);
  SessionOptions options = evicting_options(GetParam(), std::to_string(kBudget));
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 4;
  Session session = engine->open(options);
  session.prefill(random_tokens(kPrompt, 300, 1));

  const std::int64_t n_rows = counts.embedded;  // with the rows of a pass that repeats the prompt
  EXPECT_GE(n_rows, kPrompt);
  EXPECT_EQ(std::ssize(counts.rows_of_layer), kLayers);
  for (const auto& [layer, rows] : counts.rows_of_layer) EXPECT_EQ(rows, n_rows) << layer;
  for (int l = 0; l + 1 < kLayers; ++l) EXPECT_EQ(counts.read[l], n_rows) << l;
  EXPECT_EQ(counts.read[kLayers - 1], kPrompt % kBatch);  // the prompt's last batch
  EXPECT_EQ(counts.stored, n_rows * kLayers * kHeads);
  EXPECT_EQ(counts.most_rows, kBatch);
  EXPECT_EQ(counts.outputs, 1);
  EXPECT_EQ(session.statistics().entries_kept, kBudget * kLayers * kHeads);
  EXPECT_EQ(session.logits()[0], 0.5F);

  for (int i = 1; i <= 8; ++i) {
    session.decode(7);
    EXPECT_EQ(session.n_tokens(), kPrompt + i);
    EXPECT_EQ(session.logits()[0], 0.25F);
    EXPECT_EQ(session.statistics().entries_kept, (kBudget + i % 4) * kLayers * kHeads);
  }
  EXPECT_EQ(counts.steps, 8);
  Session fork = session.fork();
  Session* both[] = {&session, &fork};
  engine->decode(both, std::vector<Token>{1, 2});
  EXPECT_EQ(counts.steps, 9);
  EXPECT_EQ(fork.n_tokens(), session.n_tokens());
}

TEST(ExecutorPlans, ALateRepeatGoesThroughTheLaterLayersOnly) {
  constexpr int kLayers = 14, kPrompt = 230, kFirst = kLayers / 6;
  Counts counts;
  const auto engine = Engine::create(tiny_model({.n_layer = kLayers}), {.n_threads = 1, .n_batch = 64});
  engine->impl().executor = std::make_unique<CountingExecutor>(counts, engine->impl().model->impl().spec);
  Session session = engine->open(evicting_options("auto:bits=own,fit=none,repeat=late", "50%"));
  session.prefill(random_tokens(kPrompt, 300, 1));
  for (const auto& [layer, rows] : counts.rows_of_layer) EXPECT_EQ(rows, layer < kFirst ? kPrompt : 2 * kPrompt);
  EXPECT_EQ(counts.copied, (std::map<int, std::int64_t>{{kFirst, kPrompt}}));
  EXPECT_EQ(counts.begun, (std::map<int, std::int64_t>{{kFirst, kPrompt}}));
}

INSTANTIATE_TEST_SUITE_P(Methods, ExecutorTest,
                         ::testing::Values("snapkv:window=8", "h2o", "expected-attention", "cake:window=8",
                                           "lava:window=8", "critical-ada-snapkv:window=8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace winnow::test
