// A batch on rank 0 of several: its answers, what it keeps and what it saves are those of one engine.
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

// Requests one after the other and at once, on a shared context, and a conversation's next turn.
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
  // Another server takes the contexts over.
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

// A rank that is gone: who waits hears it, the batch ends, and nobody is taken any more.
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
