// Prefix-cache hits: a request's cached prefix is not read again, in growing conversations, in branches, with models
// whose state cannot be truncated, and in caches that were cut.
#include <algorithm>
#include <atomic>
#include <random>

#include "batch/batch_test_support.h"
#include "model/tiny_architectures.h"
#include "temporary_directory.h"

namespace winnow::test {
namespace {

using Tokens = std::vector<Token>;

Tokens operator+(Tokens left, const Tokens& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Tokens random(int n, std::uint32_t seed) { return random_tokens(n, 300, seed); }

class PrefixReuseTest : public BatchTest {
 protected:
  struct Reply {
    Tokens answer;
    BatchResult result;
  };

  BatchRequest request(const Tokens& prompt, const SessionOptions& options = batch_options()) const {
    BatchRequest request{.prompt = prompt, .session = options, .max_tokens = 6};
    request.sampling.temperature = 0;
    request.ignore_end = true;
    return request;
  }
  static Reply ask(Batch& batch, const BatchRequest& request) {
    Listener listener;
    batch.submit(request, listener.callbacks());
    const BatchResult result = listener.wait();
    EXPECT_EQ(result.reason, FinishReason::kLength) << result.error;
    return {.answer = listener.answer(), .result = result};
  }
  // Asks a new batch, which has no cached prefix.
  Reply ask_anew(BatchRequest request) {
    request.reuse = Reuse::kNone;
    const Batch batch(engine_, BatchOptions{});
    return ask(const_cast<Batch&>(batch), request);
  }
  std::unique_ptr<Batch> keeping_batch(std::size_t bytes = std::size_t{64} << 20, std::size_t kv_limit = 0) {
    return make_batch({.context_bytes = bytes}, kv_limit);
  }
};

TEST_F(PrefixReuseTest, AGrowingConversationIsReadOnce) {
  const auto batch = keeping_batch();
  Tokens said = random(500, 1);
  std::size_t n_end = 0;  // tokens that the last answer left in the cache
  for (std::uint32_t turn = 0; turn < 12; ++turn) {
    const BatchRequest next = request(said);
    const Reply reply = ask(*batch, next);
    EXPECT_EQ(reply.result.cached_tokens, n_end) << turn;
    EXPECT_EQ(reply.answer, ask_anew(next).answer) << turn;
    n_end = said.size() + reply.answer.size() - 1;  // no token follows the last one, so it was not fed
    said = said + reply.answer + random(20, 100 + turn);
  }
  EXPECT_EQ(batch->statistics().prompt_tokens + batch->statistics().cached_tokens,
            12 * 500 + (0 + 11) * 12 / 2 * (20 + 6));
  EXPECT_EQ(batch->statistics().prompt_tokens, 500 + 11 * (20 + 1));
  // The conversation is stored once, but each end of a prompt and of an answer has its own last page.
  EXPECT_EQ(batch->entries().size(), 24U);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
  const std::size_t page = std::size_t{32} * (2 * 64 + 4), n_pages = (n_end + 31) / 32 + 24;
  EXPECT_LE(bytes_in_use(), 6 * n_pages * page);
}

TEST_F(PrefixReuseTest, BranchesAnywhere) {
  const auto batch = keeping_batch();
  const Tokens trunk = random(300, 1);
  ask(*batch, request(trunk));
  for (const int n : {299, 128, 33, 32, 31}) {
    const BatchRequest branch = request(Tokens(trunk.begin(), trunk.begin() + n) + random(40, 50));
    const Reply reply = ask(*batch, branch);
    EXPECT_EQ(reply.result.cached_tokens, n);
    EXPECT_EQ(reply.answer, ask_anew(branch).answer);
  }
  // The prompt is a prefix of another one: its last token is read again for the logits after it.
  const BatchRequest part = request(Tokens(trunk.begin(), trunk.begin() + 200));
  const Reply reply = ask(*batch, part);
  EXPECT_EQ(reply.result.cached_tokens, 199);
  EXPECT_EQ(reply.answer, ask_anew(part).answer);
  EXPECT_EQ(ask(*batch, request(random(100, 9))).result.cached_tokens, 0);
  // The prompt of 200 tokens has its own copy of a page that its parent and its child share.
  constexpr std::size_t kPage = std::size_t{32} * (2 * 64 + 2);
  EXPECT_EQ(bytes_in_use() + 6 * kPage, batch->statistics().context_bytes);
}

TEST_F(PrefixReuseTest, ARequestAskedAgainReadsNothing) {
  for (const char* method : {"full", "snapkv:window=8", "kvzip", "auto"}) {
    SCOPED_TRACE(method);
    const auto batch = keeping_batch();
    const BatchRequest same =
        request(random(300, 1), batch_options(method, method == std::string("full") ? "" : "30%"));
    const Reply first = ask(*batch, same);
    const std::int64_t n_read = batch->statistics().prompt_tokens;
    const Reply second = ask(*batch, same);
    EXPECT_EQ(second.result.cached_tokens, 300);
    EXPECT_EQ(batch->statistics().prompt_tokens, n_read);
    EXPECT_EQ(second.answer, first.answer);
    EXPECT_EQ(second.result.cache.kept, first.result.cache.kept);
  }
}

TEST_F(PrefixReuseTest, CodedPagesAreCutBackWhole) {
  const auto batch = keeping_batch();
  SessionOptions options = batch_options();
  options.key_type = options.value_type = EntryType::kR4;
  const Tokens trunk = random(300, 1);
  ask(*batch, request(trunk, options));
  const BatchRequest branch = request(Tokens(trunk.begin(), trunk.begin() + 140) + random(40, 50), options);
  const Reply reply = ask(*batch, branch);
  EXPECT_EQ(reply.result.cached_tokens, 4 + 4 * 32);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

TEST_F(PrefixReuseTest, ACutConversationGoesOn) {
  const SessionOptions options = batch_options("snapkv:window=8", "25%");
  const auto batch = keeping_batch();
  Tokens context = random(400, 1);
  std::int32_t n_end = 0;
  for (std::uint32_t turn = 0; turn < 6; ++turn) {
    BatchRequest next = request(random(30, 20 + turn), options);
    next.context = context;
    const Reply reply = ask(*batch, next);
    EXPECT_EQ(reply.result.cached_tokens, n_end) << turn;
    // With kExact the same conversation is compressed as if it were read at once.
    next.reuse = Reuse::kExact;
    const Reply exact = ask(*batch, next), anew = ask_anew(next);
    EXPECT_EQ(exact.result.cached_tokens, 0);
    EXPECT_EQ(exact.answer, anew.answer);
    EXPECT_EQ(exact.result.cache.kept, anew.result.cache.kept);
    // The budget is that of the whole context, however often it was cut. The question is kept whole.
    EXPECT_EQ(reply.result.cache.entries_kept, anew.result.cache.entries_kept);
    n_end = static_cast<std::int32_t>(context.size() + next.prompt.size() + reply.answer.size() - 1);
    context = context + next.prompt + reply.answer + random(15, 70 + turn);
  }
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

TEST_F(PrefixReuseTest, PromptsCutWithTheQuestionInViewGoOnToo) {
  const SessionOptions options = batch_options("tova", "60");
  const auto batch = keeping_batch();
  Tokens said = random(200, 1);
  std::int32_t n_end = 0;
  for (std::uint32_t turn = 0; turn < 4; ++turn) {
    const Reply reply = ask(*batch, request(said, options));
    EXPECT_EQ(reply.result.cached_tokens, n_end);
    EXPECT_EQ(reply.result.cache.entries_kept, 6 * 60);
    n_end = static_cast<std::int32_t>(said.size() + reply.answer.size() - 1);
    said = said + reply.answer + random(20, 30 + turn);
  }
  // As a context the same tokens would have been cut differently.
  BatchRequest other = request(random(10, 2), options);
  other.context = said;
  EXPECT_EQ(ask(*batch, other).result.cached_tokens, 0);
}

TEST_F(PrefixReuseTest, WhatCannotBeCutAgainIsReadAgain) {
  const SessionOptions options = batch_options("kvzip", "30%");
  const auto batch = keeping_batch();
  BatchRequest first = request(random(30, 2), options);
  first.context = random(200, 1);
  const Reply reply = ask(*batch, first);
  BatchRequest second = first;
  second.context = first.context + first.prompt + reply.answer;
  EXPECT_EQ(ask(*batch, second).result.cached_tokens, 0);
  BatchRequest other_question = first;
  other_question.prompt = random(30, 3);
  EXPECT_EQ(ask(*batch, other_question).result.cached_tokens, 200);
}

// Recurrent states and sliding windows cannot be truncated: the second request with a prefix leaves a snapshot of it
// for the third.
// Its prompt was cut in one go, and its answer is whole: nothing may continue it but a cut of both.
TEST_F(PrefixReuseTest, AnAnswerBehindAPromptThatWasCutWholeIsReadAgain) {
  const auto batch = keeping_batch();
  for (const char* method : {"kvzip:window=8", "snapkv:window=8"}) {
    BatchRequest first = request(random(200, 1), batch_options(method, "30%"));
    first.reuse = Reuse::kExact;
    const Tokens answer = ask(*batch, first).answer;
    BatchRequest next = first;
    next.prompt = first.prompt + Tokens(answer.begin(), answer.end() - 1);  // the last token was never fed
    const Reply reply = ask(*batch, next);
    EXPECT_EQ(reply.result.cached_tokens, 0) << method;
    EXPECT_EQ(reply.answer, ask_anew(next).answer) << method;
  }
}

// A method's text names the file of its table, whose contents may have changed since a prefix was cut.
TEST_F(PrefixReuseTest, OtherTablesAreOtherMethods) {
  const TemporaryDirectory directory;
  const auto batch = keeping_batch();
  const auto ask_with = [&](const char* importances) {
    const std::string file = directory.write("heads.txt", importances);
    const BatchRequest next = request(random(200, 1), batch_options("headkv:head-file=" + file, "30%"));
    return ask(*batch, next).result.cached_tokens;
  };
  EXPECT_EQ(ask_with("1 2\n1 2\n1 2\n"), 0);
  EXPECT_EQ(ask_with("1 2\n1 2\n1 2\n"), 200);
  EXPECT_EQ(ask_with("2 1\n2 1\n2 1\n"), 0);
}

// A request that must wait for one that runs, whatever leaves the cache, removes nothing.
TEST_F(PrefixReuseTest, WaitingDoesNotEmptyTheCache) {
  const auto batch = keeping_batch(std::size_t{1} << 20, std::size_t{1500} << 10);
  const BatchRequest kept = request(random(300, 1));
  ask(*batch, kept);
  BatchRequest running = request(random(600, 2)), waiting = request(random(600, 3));
  running.keep = waiting.keep = false;
  running.max_tokens = 400;
  Listener runner, waiter;
  std::atomic<bool> is_over = false;
  runner.wants_token = [&](const BatchToken&) { return !is_over; };
  batch->submit(running, runner.callbacks());
  runner.wait_for_tokens(1);
  batch->submit(waiting, waiter.callbacks());
  waiter.wait_for_acceptance();
  runner.wait_for_tokens(runner.tokens().size() + 5);  // it has been tried whether the other fits
  is_over = true;
  EXPECT_EQ(waiter.wait().reason, FinishReason::kLength) << waiter.wait().error;
  EXPECT_EQ(batch->statistics().contexts_removed, 0);
  EXPECT_EQ(ask(*batch, kept).result.cached_tokens, 300);
}

// The pages of a conversation's earlier turns stay with the turn that is being answered: to remove them frees nothing.
TEST_F(PrefixReuseTest, TurnsBeforeOneThatRunsAreNoRoom) {
  const auto batch = keeping_batch(std::size_t{1} << 20, std::size_t{1500} << 10);
  const Tokens said = random(450, 1);
  ask(*batch, request(random(100, 2)));
  ask(*batch, request(said));
  BatchRequest running = request(said + random(60, 3)), waiting = request(random(600, 4));
  running.max_tokens = 300;
  waiting.keep = false;
  Listener runner, waiter;
  std::atomic<bool> is_over = false;
  runner.wants_token = [&](const BatchToken&) { return !is_over; };
  batch->submit(running, runner.callbacks());
  runner.wait_for_tokens(1);
  const std::int64_t n_removed = batch->statistics().contexts_removed;
  batch->submit(waiting, waiter.callbacks());
  waiter.wait_for_acceptance();
  runner.wait_for_tokens(runner.tokens().size() + 5);
  EXPECT_EQ(batch->statistics().contexts_removed, n_removed);
  EXPECT_TRUE(waiter.tokens().empty());
  is_over = true;
  EXPECT_EQ(waiter.wait().reason, FinishReason::kLength) << waiter.wait().error;
}

TEST_F(PrefixReuseTest, WhereThereIsNoWayBackCopiesAreLeftWherePromptsPart) {
  for (const char* architecture : {"qwen35", "lfm2", "gemma3", "gemma4"}) {
    SCOPED_TRACE(architecture);
    const TinyModel file(tiny_options(architecture));
    engine_ = Engine::create(Model::load(file.path()), {.n_threads = 1, .n_batch = 64});
    const int n_vocab = engine_->model()->info().n_vocab;
    Batch batch(engine_, {.context_bytes = std::size_t{64} << 20});
    const Tokens system = random_tokens(150, n_vocab, 1);
    std::vector<std::int32_t> cached;
    for (std::uint32_t user = 0; user < 4; ++user) {
      Tokens tail = random_tokens(100, n_vocab, 10 + user);
      tail[0] = static_cast<Token>(5 + user);
      const BatchRequest next = request(system + tail);
      const Reply reply = ask(batch, next);
      EXPECT_EQ(reply.answer, ask_anew(next).answer) << user;
      cached.push_back(reply.result.cached_tokens);
      // A conversation continues from its own end.
      const BatchRequest later = request(system + tail + reply.answer + random_tokens(20, n_vocab, 40 + user));
      EXPECT_EQ(ask(batch, later).result.cached_tokens, 250 + 6 - 1) << user;
    }
    EXPECT_EQ(cached, (std::vector<std::int32_t>{0, 0, 150, 150}));
    // States are counted once for each prefix that shares them, pages only once.
    EXPECT_GE(bytes_in_use(), batch.statistics().context_bytes);
  }
}

TEST_F(PrefixReuseTest, TheirNumberIsBounded) {
  const auto batch = keeping_batch();
  for (std::uint32_t i = 0; i < 150; ++i) ask(*batch, request(random(40, i)));
  EXPECT_EQ(batch->entries().size(), 256U);
  EXPECT_EQ(batch->statistics().contexts_removed, 300 - 256);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

TEST_F(PrefixReuseTest, NothingIsKeptOfWhoDoesNotWantIt) {
  const auto batch = keeping_batch();
  BatchRequest alone = request(random(200, 1));
  alone.reuse = Reuse::kNone;
  ask(*batch, alone);
  BatchRequest not_kept = request(random(200, 1));
  not_kept.keep = false;
  EXPECT_EQ(ask(*batch, not_kept).result.cached_tokens, 0);
  EXPECT_EQ(batch->entries().size(), 0U);
  EXPECT_EQ(bytes_in_use(), 0U);
  ask(*batch, request(random(200, 1)));
  EXPECT_EQ(ask(*batch, alone).result.cached_tokens, 0);
  EXPECT_EQ(ask(*batch, not_kept).result.cached_tokens, 200);
}

// Prefixes that are cheap to read again and have not been used for long are removed first; those in use never are.
TEST_F(PrefixReuseTest, MemoryIsBounded) {
  constexpr std::size_t kBytes = std::size_t{600} << 10;
  const auto batch = keeping_batch(kBytes);
  const Tokens often = random(200, 99);
  for (std::uint32_t i = 0; i < 20; ++i) {
    ask(*batch, request(random(100 + 7 * static_cast<int>(i), i)));
    const Reply reply = ask(*batch, request(often + random(5, 100 + i)));
    EXPECT_EQ(reply.result.cached_tokens, i > 0 ? 200 : 0) << i;
    EXPECT_LE(batch->statistics().context_bytes, kBytes);
  }
  EXPECT_GT(batch->statistics().contexts_removed, 10);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

// Requests with prefixes of each other, cut and uncut, cancelled and not, run in little memory: reservations hold,
// pages are counted exactly, and full caches answer as they do alone.
TEST_F(PrefixReuseTest, AnyMixtureUnderALimit) {
  constexpr std::size_t kLimit = std::size_t{3} << 20;
  const auto batch = make_batch({.n_parallel = 6, .max_queued = 200, .context_bytes = std::size_t{900} << 10}, kLimit);
  std::mt19937 any(7);
  const auto pick = [&](int n) { return static_cast<int>(any() % static_cast<unsigned>(n)); };
  const std::vector<SessionOptions> policies = {batch_options(), batch_options("snapkv:window=8", "30%"),
                                                batch_options("lava:window=8", "100"), batch_options("auto", "40%")};
  constexpr int kRequests = 120;
  std::vector<BatchRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    Tokens tokens = random(60 + pick(300), static_cast<std::uint32_t>(pick(3)));
    if (pick(2) == 0) tokens = tokens + random(40 + pick(60), static_cast<std::uint32_t>(10 + pick(3)));
    BatchRequest next = request(tokens, policies[static_cast<std::size_t>(pick(4))]);
    if (pick(2) == 0) {
      const auto n = static_cast<std::ptrdiff_t>(tokens.size() / 2);
      next.context.assign(tokens.begin(), tokens.begin() + n);
      next.prompt.assign(tokens.begin() + n, tokens.end());
    }
    next.reuse = std::vector{Reuse::kContinue, Reuse::kContinue, Reuse::kExact}[static_cast<std::size_t>(pick(3))];
    next.n_answers = 1 + pick(2);
    next.max_tokens = 1 + pick(40);
    if (pick(4) == 0) next.session.decode_cut = SessionOptions::DecodeCut::kTotal;
    if (!next.session.eviction.evicts()) next.session.decode_cut = SessionOptions::DecodeCut::kKeep;
    if (next.session.eviction.text().starts_with("auto")) next.session.decode_cut = SessionOptions::DecodeCut::kKeep;
    requests.push_back(next);
  }
  std::vector<Listener> listeners(kRequests);
  for (std::size_t i = 0; i < kRequests; ++i) {
    const std::uint64_t id = batch->submit(requests[i], listeners[i].callbacks());
    if (i % 7 == 6) batch->cancel(id - 3);
  }
  for (std::size_t i = 0; i < kRequests; ++i) {
    const BatchResult& result = listeners[i].wait();
    EXPECT_TRUE(result.reason == FinishReason::kLength || result.reason == FinishReason::kCancelled) << result.error;
  }
  EXPECT_LE(engine_->memory().kv_bytes_peak, kLimit);
  EXPECT_LE(bytes_in_use(),
            batch->statistics().context_bytes);  // which counts pages with copies in between and shared scores twice
  EXPECT_LE(batch->statistics().bytes_reserved, std::size_t{900} << 10);
  EXPECT_GT(batch->statistics().cached_tokens, 1000);
  for (std::size_t i = 0; i < kRequests; i += 5) {
    if (requests[i].session.eviction.evicts() || listeners[i].wait().reason != FinishReason::kLength) continue;
    EXPECT_EQ(listeners[i].answer(), ask_anew(requests[i]).answer) << i;
  }
}

}  // namespace
}  // namespace winnow::test
