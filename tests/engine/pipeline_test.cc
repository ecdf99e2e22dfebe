// A model whose layers are held by several ranks, here threads of one process, computes and keeps the same bits on
// every rank as one engine that holds all layers.
#include "winnow/pipeline.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/pipeline_test_support.h"
#include "model/tiny_architectures.h"
#include "sanitizers.h"

namespace winnow::test {
namespace {

TEST(Pipeline, ComputesTheBitsOfOneEngine) {
  const auto model = tiny_model({.n_layer = 5});
  for (const std::vector<int>& first_layers : {std::vector<int>{1}, {4}, {2, 3}, {1, 2, 3, 4}}) {
    expect_same(model, first_layers, [](Engine& engine) {
      Seen seen = conversation(engine, full_options());
      Session session = engine.open(full_options());
      session.prefill(random_tokens(100, 300, 6), {.on_logits = [&](std::int32_t, std::span<const float> row) {
                        seen.logits.emplace_back(row.begin(), row.end());
                      }});
      session.truncate(60);
      session.append(random_tokens(20, 300, 7));
      seen.look(session);
      session.clear();
      session.prefill(random_tokens(20, 300, 8), {.on_hidden = [&](std::int32_t, std::span<const float> row) {
                        seen.logits.emplace_back(row.begin(), row.end());
                      }});
      return seen;
    });
  }
}

// Layers may be of any kind: experts, sliding windows, recurrent states, latents, embeddings per layer.
TEST(Pipeline, ComputesEveryArchitecture) {
  for (const TinyArchitecture& architecture : tiny_architectures()) {
    SCOPED_TRACE(architecture.name);
    if (architecture.name == "deci") continue;  // only libllama has it
    const auto model = tiny_model(tiny_options(architecture.name));
    expect_same(model, {1}, [&](Engine& engine) { return conversation(engine, full_options(), 5 * kBatch); });
  }
}

// A link that records the progress of its rank's prefill whenever rows are sent to the next rank.
class NotingLink final : public PipelineLink {
 public:
  NotingLink(std::shared_ptr<PipelineLink> link, std::size_t row_bytes) : link_(std::move(link)), bytes_(row_bytes) {}
  int rank() const override { return link_->rank(); }
  int n_ranks() const override { return link_->n_ranks(); }
  void send(int to, int channel, std::span<const std::byte> message) override {
    if (message.size() == bytes_) sent_at.push_back(work_done);
    link_->send(to, channel, message);
  }
  std::vector<std::byte> receive(int from, int channel) override { return link_->receive(from, channel); }
  void fail(const std::string& message) noexcept override { link_->fail(message); }

  std::int64_t work_done = 0;
  std::vector<std::int64_t> sent_at;

 private:
  const std::shared_ptr<PipelineLink> link_;
  const std::size_t bytes_;
};

// Returns the work of rank 0, with three of four layers, when each of n_batches batches was sent, in batches of one
// layer. kv_limit: 0 for none.
std::vector<std::int64_t> batches_done_when_sent(const SessionOptions& options, int n_batches, std::size_t kv_limit) {
  const auto model = tiny_model({.n_layer = 4});
  std::vector<std::int64_t> done;
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto row_bytes = static_cast<std::size_t>(model->info().n_embd) * sizeof(float);
    const auto noting = std::make_shared<NotingLink>(link, kBatch * row_bytes);
    EngineOptions engine_options = rank_options(noting, {3});
    engine_options.prefill_weights = PrefillWeights::kAsIs;  // other weights are converted for several batches
    engine_options.kv_bytes_limit = kv_limit;
    Session session = Engine::create(model, engine_options)->open(options);
    session.prefill(random_tokens(n_batches * kBatch, 300, 4), {.on_progress = [&](std::int64_t n, std::int64_t) {
                      noting->work_done = n;
                      return true;
                    }});
    if (link->rank() > 0) return;
    for (const std::int64_t n : noting->sent_at) done.push_back(n / kBatch + 1);  // including the batch that is sent
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
  return done;
}

// A batch is sent to the next rank before this rank begins with the following one. Without room for the keys and values
// of all its layers, a rank takes fewer layers together and sends batches later.
TEST(Pipeline, SendsABatchOnBeforeTheNextBegins) {
  const SessionOptions options = evicting_options("snapkv", "20%");
  EXPECT_EQ(batches_done_when_sent(options, 5, 0), (std::vector<std::int64_t>{3, 6, 9, 12, 15}));
  EXPECT_EQ(batches_done_when_sent(options, 5, std::size_t{1} << 30), (std::vector<std::int64_t>{3, 6, 9, 12, 15}));
  EXPECT_EQ(batches_done_when_sent(options, 5, 400 << 10), (std::vector<std::int64_t>{11, 12, 13, 14, 15}));
  EXPECT_EQ(batches_done_when_sent(evicting_options("h2o", "20%"), 5, 0),
            (std::vector<std::int64_t>{11, 12, 13, 14, 15}));
}

class PipelineMethod : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Presets, PipelineMethod, testing::ValuesIn(session_methods()), method_test_name);

TEST_P(PipelineMethod, KeepsTheSameEntries) {
  const auto model = tiny_model({.n_layer = 5});
  const SessionOptions options = evicting_options(GetParam(), "20%");
  for (const std::vector<int>& first_layers : {std::vector<int>{3}, {1, 4}}) {
    expect_same(model, first_layers, [&](Engine& engine) { return conversation(engine, options); });
  }
}

TEST_P(PipelineMethod, KeepsTheSameEntriesOfLaterTurns) {
  SessionOptions options = evicting_options(GetParam(), "20%");
  const auto model = tiny_model({.n_layer = 4});
  const auto again = [&](Engine& engine) {
    Seen seen;
    Session session = engine.open(options);
    session.prefill(random_tokens(300, 300, 4));
    session.prefill(random_tokens(150, 300, 5));
    seen.look(session);
    for (const Token token : {5, 9, 11}) session.decode(token);
    session.prefill(random_tokens(100, 300, 6));
    seen.look(session);
    return seen;
  };
  const auto engine = Engine::create(model, {.n_threads = 1});
  if (engine->open(options).impl().evidence.needs().reconstruction_only) {
    GTEST_SKIP() << "a method that repeats the whole prompt does not cut again";
  }
  expect_same(model, {2}, again);
  options.prefill_chunk = 64;
  expect_same(model, {1, 3}, again);
}

TEST(Pipeline, KeepsTheSameEntriesWhileDecoding) {
  const auto model = tiny_model({.n_layer = 4});
  for (const char* method : {"snapkv", "lava", "cake", "keydiff", "ada-snapkv", "pyramidkv"}) {
    for (const auto cut : {SessionOptions::DecodeCut::kTotal, SessionOptions::DecodeCut::kOwn}) {
      SCOPED_TRACE(method);
      SessionOptions options = evicting_options(method, "60");
      options.decode_cut = cut;
      options.cut_every = cut == SessionOptions::DecodeCut::kTotal ? 2 : 1;
      expect_same(model, {1, 2}, [&](Engine& engine) {
        Seen seen;
        Session session = engine.open(options);
        session.prefill(random_tokens(200, 300, 4));
        for (Token token = 20; token < 30; ++token) {
          session.decode(token);
          seen.look(session);
        }
        return seen;
      });
    }
  }
}

// Entries have several numbers of bits, ranked over the whole model, and refitted values.
TEST(Pipeline, StoresTheSameBits) {
  const auto model = tiny_model({.n_layer = 4, .n_head = 4, .n_kv_head = 2, .head_dim = 32, .seed = 3});
  for (const char* method :
       {"auto:repeat=always", "auto:fast", "snapkv:bits=8:0.3,4", "lava:bits=4", "kvzip+:bits=8:0.2,4,floor=40"}) {
    for (const char* budget : {"20%bytes", "12%bytes"}) {
      if (kHasSanitizers && budget != std::string("20%bytes")) continue;
      SCOPED_TRACE(std::string(method) + " " + budget);
      SessionOptions options;
      options.eviction = EvictionOptions::parse(method);
      options.budget = Budget::parse(budget);
      for (const std::vector<int>& first_layers : {std::vector<int>{2}, {1, 3}}) {
        expect_same(model, first_layers, [&](Engine& engine) { return conversation(engine, options, 700); });
      }
    }
  }
}

TEST(Pipeline, SharesAPrefillAmongSessions) {
  const auto model = tiny_model({.n_layer = 4});
  expect_same(model, {1, 3}, [](Engine& engine) {
    std::vector<Session> sessions;
    for (const char* method : {"snapkv", "lava", "cake", "kvzip+", "ada-snapkv", "h2o"}) {
      sessions.push_back(engine.open(evicting_options(method, "30%")));
    }
    sessions.push_back(engine.open(full_options()));
    std::vector<Session*> all;
    for (Session& session : sessions) all.push_back(&session);
    engine.prefill(all, random_tokens(300, 300, 4));
    Seen seen;
    for (const Session& session : sessions) seen.look(session);
    return seen;
  });
}

TEST(Pipeline, HoldsOnlyItsOwnLayers) {
  const auto model = tiny_model({.n_layer = 4});
  std::vector<std::size_t> in_use(3);
  Session whole = Engine::create(model, {.n_threads = 1})->open(full_options());
  whole.prefill(random_tokens(320, 300, 4));
  const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, rank_options(link, {1, 3}));
    Session session = engine->open(full_options());
    session.prefill(random_tokens(320, 300, 4));
    in_use[static_cast<std::size_t>(link->rank())] = engine->memory().kv_bytes_in_use;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  const std::size_t of_layer = whole.statistics().bytes_in_pages / 4;
  EXPECT_EQ(in_use, (std::vector<std::size_t>{of_layer, 2 * of_layer, of_layer}));
}

// One rank's error ends the others' waiting and names the rank.
TEST(Pipeline, EndsTogether) {
  const auto model = tiny_model({.n_layer = 3});
  for (int failing = 0; failing < 3; ++failing) {
    const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
      EngineOptions options = rank_options(link, {1, 2});
      if (link->rank() == failing) options.kv_bytes_limit = 100 << 10;
      const auto engine = Engine::create(model, options);
      Session session = engine->open(full_options());
      for (int turn = 0; turn < 100; ++turn) session.append(random_tokens(20, 300, 4));
    });
    expect_failure_of(failing, errors);
  }
}

TEST(Pipeline, RefusesWhatRanksDoNotHaveAlike) {
  const std::vector<std::shared_ptr<const Model>> models = {tiny_model({.n_layer = 3}),
                                                            tiny_model({.n_layer = 3, .seed = 9})};
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    Engine::create(models[static_cast<std::size_t>(link->rank())], rank_options(link, {}));
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("a different model"), std::string::npos) << error;
}

// Ranks split the layers by their bytes.
TEST(Pipeline, PartsLayersByTheirBytes) {
  const auto ranges = [](const std::shared_ptr<const Model>& model, int n_ranks, std::vector<int> first_layers = {}) {
    return split_layers(model->impl().spec, model->impl().file, n_ranks, first_layers);
  };
  // Layer 4 is larger than all others together with the embeddings.
  std::vector<TinyLayer> layers(6, {.n_ff = 64});
  layers[4].n_ff = 64 * 60;
  const auto model = tiny_model({.layers = layers});
  EXPECT_EQ(ranges(model, 1), (std::vector<LayerRange>{{0, 6}}));
  EXPECT_EQ(ranges(model, 2)[1].first, 4);
  EXPECT_EQ(ranges(model, 3)[2], (LayerRange{5, 6}));
  EXPECT_EQ(ranges(model, 6).size(), 6U);
  EXPECT_EQ(ranges(model, 3, {2, 3}), (std::vector<LayerRange>{{0, 2}, {2, 3}, {3, 6}}));
  for (const std::vector<int>& bad : {std::vector<int>{0}, {6}, {3, 3}, {3, 2}, {-1}, {1, 2, 3}}) {
    expect_error(ErrorCode::kInvalidArgument,
                 [&] { ranges(model, bad.size() > 2 ? 2 : static_cast<int>(bad.size()) + 1, bad); });
  }
  expect_error(ErrorCode::kInvalidArgument, [&] { ranges(model, 7); });

  // The last three of seven layers attend to entries of layers 2 and 3.
  const auto sharing = tiny_model(tiny_options("gemma4"));
  for (int first = 1; first <= 2; ++first) EXPECT_EQ(ranges(sharing, 2, {first})[1].first, first);
  for (int first = 3; first < 7; ++first) {
    expect_error(ErrorCode::kInvalidArgument, [&] { ranges(sharing, 2, {first}); });
  }
  EXPECT_LE(ranges(sharing, 2)[1].first, 2);
  EXPECT_EQ(ranges(sharing, 3)[2], (LayerRange{2, 7}));
  expect_error(ErrorCode::kInvalidArgument, [&] { ranges(sharing, 4); });
  expect_same(sharing, {2}, [](Engine& engine) { return conversation(engine, full_options(), 100); });
  expect_same(sharing, {1, 2}, [](Engine& engine) { return conversation(engine, evicting_options("kvzip+", "40%")); });
}

// The search for a budget by the loss of cuts has the same result, also for a loss that no cut keeps to.
TEST(Pipeline, FindsTheSameBudgetForALoss) {
  const auto model = tiny_model({.n_layer = 3, .n_head = 4, .n_kv_head = 2, .head_dim = 32, .seed = 3});
  const auto prompt = random_tokens(kHasSanitizers ? 400 : 700, 300, 4);
  for (const char* method : {"auto", "kvzip", "kvzip+:fit=values,bits=4", "kvzip:layers=uniform,heads=ada,bits=4"}) {
    SCOPED_TRACE(method);
    const Program search = [&](Engine& engine) {
      Seen seen;
      SessionOptions options;
      options.eviction = EvictionOptions::parse(method);
      double loss = 10;
      for (int i = 0; i < 2; ++i) {  // the second loss is less than that of the smallest cut
        options.budget = Budget{.unit = Budget::Unit::kLoss, .amount = loss};
        Session session = engine.open(options);
        session.prefill(prompt);
        seen.look(session);
        const LossPromise promise = session.statistics().promise.value();
        for (const LossPromise::Trial& trial : promise.tried) {
          seen.logits.push_back({static_cast<float>(trial.budget.amount), static_cast<float>(trial.kl)});
        }
        loss = 0.999 * promise.expected;
        session.append(random_tokens(20, 300, 5));
        session.decode(7);
        seen.look(session);
      }
      options.budget = Budget{.unit = Budget::Unit::kLoss, .amount = 1e-9};
      Session refused = engine.open(options);
      expect_error(ErrorCode::kInvalidArgument, [&] { refused.prefill(prompt); });
      refused.append(random_tokens(20, 300, 4));  // all ranks still go on
      seen.look(refused);
      return seen;
    };
    for (const std::vector<int>& first_layers : {std::vector<int>{1}, {1, 2}}) expect_same(model, first_layers, search);
  }
}

struct RankEstimates {
  std::vector<std::size_t> peaks, estimates;  // [n_ranks]
};

// Returns the peaks and estimates of ranks with two, three and one of the model's six layers.
RankEstimates rank_estimates(const std::shared_ptr<const Model>& model, const SessionOptions& options,
                             std::int32_t n_prompt, std::size_t kv_limit) {
  RankEstimates all{.peaks = std::vector<std::size_t>(3), .estimates = std::vector<std::size_t>(3)};
  const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
    EngineOptions engine_options = rank_options(link, {2, 5});
    engine_options.kv_bytes_limit = kv_limit;
    const auto engine = Engine::create(model, engine_options);
    const auto rank = static_cast<std::size_t>(link->rank());
    all.estimates[rank] = engine->estimate(options, n_prompt, 20).kv_bytes_peak;
    Session session = engine->open(options);
    session.prefill(random_tokens(n_prompt, 300, 4));
    for (Token token = 0; token < 20; ++token) session.decode(token);
    all.peaks[rank] = engine->memory().kv_bytes_peak;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(all.estimates[rank], all.estimates[0]);
    EXPECT_LE(all.peaks[rank], all.estimates[rank]) << rank;
  }
  return all;
}

// The estimate is that of the rank that needs most, and no rank takes more. Within a limit a rank takes fewer layers
// together, down to one, and has memory for its cut entries and that layer's keys and values.
TEST(Pipeline, EstimatesARanksOwnPart) {
  const auto model = tiny_model({.n_layer = 6});
  const std::int32_t n_prompt = 500;
  for (const bool evicts : {false, true}) {
    const SessionOptions options = evicts ? evicting_options("snapkv", "20%") : full_options();
    const MemoryEstimate all = Engine::create(model, {.n_threads = 1})->estimate(options, n_prompt, 20);
    const std::size_t wide = rank_estimates(model, options, n_prompt, 0).estimates[0];
    EXPECT_EQ(rank_estimates(model, options, n_prompt, 2 * wide).estimates[0], wide);
    const std::size_t narrow = rank_estimates(model, options, n_prompt, all.kv_bytes_peak).estimates[0];
    EXPECT_LT(narrow, wide);
    EXPECT_LT(narrow, all.kv_bytes_peak);
    rank_estimates(model, options, n_prompt, narrow);
    if (!evicts) {
      EXPECT_LT(narrow, all.kv_bytes_peak * 2 / 3);  // three of six layers, and the staging buffer
    }
  }
}

}  // namespace
}  // namespace winnow::test
