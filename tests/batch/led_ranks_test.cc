// A batch on rank 0 of several ranks answers, keeps and saves the same as on one engine.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "batch/batch_test_support.h"
#include "engine/pipeline_test_support.h"

namespace winnow::test {
namespace {

struct Outcome {
  std::vector<std::vector<Token>> answers;
  std::vector<std::int32_t> cached;
  std::vector<std::int64_t> kept;

  void take(Listener& listener) {
    const BatchResult& result = listener.wait();
    EXPECT_EQ(result.error, "");
    answers.push_back(listener.answer());
    cached.push_back(result.cached_tokens);
    kept.push_back(result.cache.entries_kept);
  }
  bool operator==(const Outcome&) const = default;
};

// Serves requests with a shared context, first one after the other, then several at once, then one by a new batch.
Outcome serve(const std::shared_ptr<Engine>& engine, const SessionOptions& options, const std::string& folder) {
  Outcome outcome;
  BatchOptions of_batch{.n_parallel = 4, .context_bytes = 64 << 20, .cache_dir = folder};
  {
    Batch batch(engine, of_batch);
    for (const std::uint32_t seed : {1, 2}) {
      Listener listener;
      BatchRequest request = batch_request(200, 10, 1, options, 6);
      request.prompt = random_tokens(10, 300, seed);
      batch.submit(request, listener.callbacks());
      outcome.take(listener);
    }
    std::vector<Listener> at_once(4);
    for (std::uint32_t i = 0; i < 4; ++i) {
      batch.submit(batch_request(i % 2 == 0 ? 120 : 0, 60, 10 + i / 2, options, 12), at_once[i].callbacks());
    }
    for (Listener& listener : at_once) outcome.take(listener);
    Listener too_long;
    batch.submit(batch_request(0, 5000, 3, options, 5), too_long.callbacks());
    EXPECT_EQ(too_long.wait().reason, FinishReason::kError);
  }
  // Another batch loads the saved contexts.
  Batch batch(engine, of_batch);
  Listener listener;
  batch.submit(batch_request(200, 10, 1, options, 6), listener.callbacks());
  outcome.take(listener);
  EXPECT_GE(outcome.cached.back(), 200);
  return outcome;
}

TEST(BatchOnLedRanks, AnswersAsOnOneEngine) {
  const auto model = tiny_model({.n_layer = 3});
  for (const char* method : {"full", "snapkv"}) {
    SCOPED_TRACE(method);
    const SessionOptions options = std::string(method) == "full" ? batch_options() : batch_options(method, "40%");
    const TemporaryDirectory alone, shared;
    const Outcome expected =
        serve(Engine::create(model, {.n_threads = 1, .n_batch = kBatch}), options, alone.file("c"));
    Outcome outcome;
    const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
      const auto engine = Engine::create(model, led_options(link, {1}));
      if (link->rank() > 0) return engine->follow();
      outcome = serve(engine, options, shared.file("c"));
    });
    EXPECT_EQ(errors, std::vector<std::string>(2));
    EXPECT_TRUE(outcome == expected);
  }
}

// Serves requests whose answers take turns over the ranks: several answers of one request, then several requests, some
// of which are cut while decoding; one stops early and one is cancelled. Sets n_steps to the steps of the first
// request.
Outcome answer_in_turn(const std::shared_ptr<Engine>& engine, std::int64_t& n_steps) {
  SessionOptions options = batch_options("snapkv", "40%");
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 3;
  Outcome outcome;
  Batch batch(engine, {.n_parallel = 12});
  {
    Listener four;
    BatchRequest request = batch_request(0, 80, 3, batch_options(), 13);
    request.n_answers = 4;
    request.sampling.temperature = 1;
    request.sampling.seed = 5;
    batch.submit(request, four.callbacks());
    outcome.take(four);
    for (int i = 1; i < 4; ++i) outcome.answers.push_back(four.answer(i));
    n_steps = batch.statistics().steps;
  }
  Listener given_up;
  const std::uint64_t id = batch.submit(batch_request(0, 40, 50, batch_options(), 5000), given_up.callbacks());
  given_up.wait_for_tokens(3);
  std::vector<Listener> at_once(7);
  for (std::uint32_t i = 0; i < at_once.size(); ++i) {
    if (i == 3) {  // stops at its eighth token
      at_once[i].wants_token = [n = 0](const BatchToken&) mutable { return ++n < 8; };
    }
    batch.submit(batch_request(0, 30 + 20 * static_cast<int>(i), 60 + i, i % 2 == 0 ? batch_options() : options,
                               10 + 6 * static_cast<std::int32_t>(i)),
                 at_once[i].callbacks());
  }
  at_once[2].wait_for_tokens(5);
  batch.cancel(id);
  EXPECT_EQ(given_up.wait().reason, FinishReason::kCancelled);
  for (Listener& listener : at_once) outcome.take(listener);
  return outcome;
}

TEST(BatchOnLedRanks, AnswersTakeTurns) {
  const auto model = tiny_model({.n_layer = 3, .n_ctx = 8192});
  std::int64_t n_expected = 0;
  const Outcome expected = answer_in_turn(Engine::create(model, {.n_threads = 1, .n_batch = kBatch}), n_expected);
  EXPECT_EQ(n_expected, 12);
  for (const std::vector<int>& first_layers : {std::vector<int>{1}, {1, 2}}) {
    const int n_ranks = static_cast<int>(first_layers.size()) + 1;
    Outcome outcome;
    std::int64_t n_steps = 0;
    const std::vector<std::string> errors = on_ranks(n_ranks, [&](const std::shared_ptr<PipelineLink>& link) {
      const auto engine = Engine::create(model, led_options(link, first_layers));
      if (link->rank() > 0) {
        engine->follow();
        EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
        return;
      }
      outcome = answer_in_turn(engine, n_steps);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(n_ranks)));
    EXPECT_TRUE(outcome == expected);
    EXPECT_EQ(n_steps, 2 * n_expected);  // groups of two answers, with two ranks and with three
  }
}

// A batch that is destroyed in the middle of answers leaves no unfinished step.
TEST(BatchOnLedRanks, EndInTheMiddleOfSteps) {
  const auto model = tiny_model({.n_layer = 3, .n_ctx = 8192});
  const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, led_options(link, {1, 2}));
    if (link->rank() > 0) return engine->follow();
    std::vector<Listener> listeners(5);
    {
      Batch batch(engine, {.n_parallel = 5});
      for (Listener& listener : listeners) {
        batch.submit(batch_request(0, 40, 1, batch_options(), 5000), listener.callbacks());
      }
      for (Listener& listener : listeners) listener.wait_for_tokens(3);
    }
    for (Listener& listener : listeners) EXPECT_EQ(listener.wait().reason, FinishReason::kCancelled);
    Batch batch(engine, {.n_parallel = 5});
    Listener after;
    batch.submit(batch_request(0, 40, 1, batch_options(), 5), after.callbacks());
    EXPECT_EQ(after.wait().reason, FinishReason::kLength) << after.wait().error;
  });
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

// When a rank fails, a waiting request ends with that rank's error.
TEST(BatchOnLedRanks, SayWhyTheyEnd) {
  const auto model = tiny_model({.n_layer = 3});
  on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, led_options(link, {1}));
    if (link->rank() > 0) throw Error(ErrorCode::kInternal, "gone");
    Batch batch(engine, {.n_parallel = 2});
    Listener first;
    batch.submit(batch_request(0, 50, 1, batch_options(), 5), first.callbacks());
    EXPECT_EQ(first.wait().reason, FinishReason::kError);
    EXPECT_NE(first.wait().error.find("rank 1 failed: gone"), std::string::npos) << first.wait().error;
  });
}

}  // namespace
}  // namespace winnow::test
