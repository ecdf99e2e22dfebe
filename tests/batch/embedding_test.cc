// A batch computes embeddings besides answers.
#include "winnow/embedding.h"

#include "batch/batch_test_support.h"

namespace winnow::test {
namespace {

BatchRequest embedding_request(int n, std::uint32_t seed) {
  BatchRequest request;
  request.embedding = Pooling::kMean;
  request.prompt = random_tokens(n, 300, seed);
  return request;
}

TEST_F(BatchTest, EmbeddingsBesideAnswersAreThoseAlone) {
  const auto batch = make_batch({.n_parallel = 4, .context_bytes = std::size_t{64} << 20});
  std::vector<Listener> listeners(12);
  std::vector<BatchRequest> requests;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(i % 2 == 0 ? embedding_request(20 + 30 * i, 7) : batch_request(0, 50, 3, batch_options(), 20));
    batch->submit(requests.back(), listeners[static_cast<std::size_t>(i)].callbacks());
  }
  const auto alone = Engine::create(model_, {.n_threads = 1, .n_batch = 64});
  for (std::size_t i = 0; i < 12; ++i) {
    const BatchResult& result = listeners[i].wait();
    EXPECT_TRUE(result.error.empty()) << result.error;
    if (i % 2 != 0) {
      EXPECT_EQ(result.answer_tokens, 20);
      EXPECT_TRUE(result.embedding.empty());
      continue;
    }
    EXPECT_EQ(result.embedding, embed(*alone, requests[i].prompt, {.is_normalised = false}));
    EXPECT_EQ(result.prompt_tokens, static_cast<std::int32_t>(requests[i].prompt.size()));
    EXPECT_EQ(result.cached_tokens, 0);
    EXPECT_TRUE(listeners[i].tokens().empty());
    EXPECT_TRUE(listeners[i].finished().empty());
  }
  for (const BatchEntry& entry : batch->entries()) EXPECT_LT(entry.n_tokens, 100);  // only the chats' entries
}

TEST_F(BatchTest, AnEmbeddingMayFillTheContext) {
  const auto batch = make_batch();
  Listener whole, longer, with_context;
  BatchRequest request = embedding_request(100, 3);
  request.session.n_ctx = 100;
  batch->submit(request, whole.callbacks());
  EXPECT_EQ(whole.wait().embedding.size(), 64U) << whole.wait().error;
  request.prompt.push_back(1);
  batch->submit(request, longer.callbacks());
  EXPECT_EQ(longer.wait().error_code, ErrorCode::kContextFull);
  EXPECT_EQ(longer.wait().reason, FinishReason::kError);
  request = embedding_request(10, 3);
  request.context = {1, 2};
  batch->submit(request, with_context.callbacks());
  EXPECT_EQ(with_context.wait().error_code, ErrorCode::kInvalidArgument);
}

TEST_F(BatchTest, ACancelledEmbeddingGivesItsMemoryBack) {
  const auto batch = make_batch();
  Listener listener, next;
  BatchRequest request = embedding_request(16000, 3);  // long enough that the cancellation comes in time
  request.session.n_ctx = 16000;
  const std::uint64_t id = batch->submit(request, listener.callbacks());
  listener.wait_for_acceptance();
  batch->cancel(id);
  EXPECT_EQ(listener.wait().reason, FinishReason::kCancelled);
  batch->submit(embedding_request(5, 3), next.callbacks());
  EXPECT_EQ(next.wait().embedding.size(), 64U);
  EXPECT_EQ(bytes_in_use(), 0U);
  EXPECT_EQ(batch->statistics().bytes_reserved, 0U);
}

TEST_F(BatchTest, AnEmbeddingThatCannotFitSaysSo) {
  const auto batch = make_batch({}, std::size_t{1} << 20);
  Listener listener;
  batch->submit(embedding_request(2000, 3), listener.callbacks());
  EXPECT_EQ(listener.wait().error_code, ErrorCode::kInvalidArgument);
  EXPECT_NE(listener.wait().error.find("embed the text in parts"), std::string::npos) << listener.wait().error;
}

}  // namespace
}  // namespace winnow::test
