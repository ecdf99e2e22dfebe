// The batching engine: answers, contexts, order, cancellation, limits.
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "batch/admission.h"
#include "batch/batch_test_support.h"
#include "engine/cpu/step_graph.h"
#include "engine/engine_impl.h"
#include "expect_error.h"
#include "model/byte_pair_model.h"
#include "model/model_impl.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

TEST_F(BatchTest, AnswersUnderLoadEqualThoseAlone) {
  const std::vector<SessionOptions> policies = {batch_options(), batch_options("snapkv:window=8", "30%"),
                                                batch_options("streaming-llm:window=8", "24"),
                                                batch_options("lava:window=8", "25%")};
  std::vector<BatchRequest> requests;
  for (int i = 0; i < 64; ++i) {
    // Two thirds of the requests share one of eight contexts.
    const int n_context = i % 3 == 0 ? 0 : 100 + 10 * (i % 8);
    BatchRequest request =
        batch_request(n_context, 40 + i % 90, 7, policies[static_cast<std::size_t>(i) % 4], 4 + i % 29);
    request.prompt[0] = static_cast<Token>(10 + i);
    request.reuse = Reuse::kExact;  // some contexts continue others
    requests.push_back(request);
  }
  std::vector<std::vector<Token>> alone;
  {
    const auto batch = make_batch({.n_parallel = 1}, 0, 2);
    for (const BatchRequest& request : requests) {
      Listener listener;
      batch->submit(request, listener.callbacks());
      ASSERT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
      alone.push_back(listener.answer());
      ASSERT_EQ(alone.back().size(), static_cast<std::size_t>(request.max_tokens));
    }
  }
  const auto batch = make_batch({.n_parallel = 8, .max_queued = 64, .context_bytes = std::size_t{64} << 20}, 0, 2);
  std::vector<Listener> listeners(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) batch->submit(requests[i], listeners[i].callbacks());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(listeners[i].wait().reason, FinishReason::kLength) << listeners[i].wait().error;
    EXPECT_EQ(listeners[i].answer(), alone[i]) << "request " << i;
  }
  const BatchStatistics statistics = batch->statistics();
  EXPECT_EQ(statistics.finished, 64);
  EXPECT_EQ(statistics.context_hits + statistics.context_misses, 64);
  EXPECT_GT(statistics.context_hits, 10);
  // Steps had several answers each.
  EXPECT_LT(statistics.steps * 2, statistics.answer_tokens);
}

// Penalties and DRY look back over the context and the prompt, as far as their options say.
TEST_F(BatchTest, SamplersLookBackOverTheWholeSequence) {
  const auto batch = make_batch();
  BatchRequest request = batch_request(150, 90, 5, batch_options(), 12);
  // Four tokens alone, so that everything that may come next continues a repetition.
  std::vector<Token> sequence;
  for (std::vector<Token>* part : {&request.context, &request.prompt}) {
    for (Token& token : *part) token = 10 + token % 4;
    sequence.insert(sequence.end(), part->begin(), part->end());
  }
  for (Token token = 10; token < 14; ++token) request.sampling.logit_bias.push_back({token, 50});
  request.sampling.dry_multiplier = 1;
  const auto answer = [&](int dry_penalty_last_n, std::size_t n_accepted) {
    request.sampling.dry_penalty_last_n = dry_penalty_last_n;
    Session session = engine_->open(request.session);
    session.prefill(sequence);
    Sampler sampler(model_, request.sampling);
    for (const Token token : std::span(sequence).last(n_accepted)) sampler.accept(token);
    std::vector<Token> tokens;
    while (std::ssize(tokens) < request.max_tokens) {
      tokens.push_back(sampler.sample(session.logits()));
      session.decode(tokens.back());
    }
    return tokens;
  };
  for (const auto& [last_n, n_accepted] : {std::pair<int, std::size_t>{-1, sequence.size()}, {40, 40}, {0, 0}}) {
    const std::vector<Token> expected = answer(last_n, n_accepted);
    Listener listener;
    batch->submit(request, listener.callbacks());
    EXPECT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
    EXPECT_EQ(listener.answer(), expected) << last_n;
    EXPECT_EQ(request.sampling.n_looked_back(sequence.size()), n_accepted);
  }
  EXPECT_NE(answer(-1, sequence.size()), answer(-1, 0));
}

// The prefill of a long prompt and of a long context reports its progress; a short one does not.
TEST_F(BatchTest, ReadingsSayHowFarTheyAre) {
  std::mutex mutex;
  std::vector<BatchReadingProgress> told;
  const auto collect = [&](const BatchReadingProgress& reading) {
    const std::lock_guard lock(mutex);
    told.push_back(reading);
  };
  {
    const auto batch = make_batch({.on_reading = collect, .between_readings_s = 0});
    for (const bool has_context : {true, false}) {
      Listener listener;
      const std::uint64_t id =
          batch->submit(batch_request(has_context ? 600 : 0, 500, 1, batch_options("snapkv:window=8", "20%"), 2),
                        listener.callbacks());
      EXPECT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
      const std::lock_guard lock(mutex);
      ASSERT_GT(told.size(), 10U);
      double share = 0;
      std::int32_t n_tokens = 0;
      for (const BatchReadingProgress& reading : told) {
        EXPECT_EQ(reading.request, id);
        if (reading.n_tokens != n_tokens) share = 0;  // the prompt after the context
        n_tokens = reading.n_tokens;
        EXPECT_GT(reading.share, share);
        EXPECT_LE(reading.share, 1);
        share = reading.share;
      }
      EXPECT_EQ(told.front().n_tokens, has_context ? 600 : 500);
      EXPECT_EQ(told.back().n_tokens, 500);
      told.clear();
    }
  }
  const auto batch = make_batch({.on_reading = collect});
  Listener listener;
  batch->submit(batch_request(0, 500, 1, batch_options(), 2), listener.callbacks());
  listener.wait();
  EXPECT_TRUE(told.empty());
}

TEST_F(BatchTest, SecondUseOfAContextReadsOnlyThePrompt) {
  const auto batch = make_batch({.context_bytes = std::size_t{64} << 20});
  const SessionOptions options = batch_options("snapkv:window=8", "20%");
  BatchRequest request = batch_request(400, 20, 1, options, 5);
  Listener first, second, again, other_policy, not_kept, not_kept_again;
  batch->submit(request, first.callbacks());
  EXPECT_EQ(first.wait().cached_tokens, 0);
  EXPECT_EQ(first.wait().prompt_tokens, 420);
  std::reverse(request.prompt.begin(), request.prompt.end());
  batch->submit(request, second.callbacks());
  EXPECT_EQ(second.wait().cached_tokens, 400);
  EXPECT_EQ(batch->statistics().prompt_tokens, 440);
  // Each of six heads keeps a fifth of the context and the whole prompt.
  EXPECT_EQ(second.wait().cache.entries_kept, 6 * (80 + 20));
  EXPECT_EQ(second.wait().method, options.eviction.text());
  batch->submit(request, again.callbacks());
  EXPECT_EQ(again.wait().cached_tokens, 420);
  EXPECT_EQ(again.answer(), second.answer());
  EXPECT_EQ(batch->statistics().prompt_tokens, 440);

  request.session.budget = Budget::parse("30%");
  batch->submit(request, other_policy.callbacks());
  EXPECT_EQ(other_policy.wait().cached_tokens, 0);
  request.session.budget = Budget::parse("40%");
  request.keep = false;
  batch->submit(request, not_kept.callbacks());
  not_kept.wait();
  batch->submit(request, not_kept_again.callbacks());
  EXPECT_EQ(not_kept_again.wait().cached_tokens, 0);
  const std::vector<BatchEntry> entries = batch->entries();
  // They are two contexts, three prompts that follow them, and their answers.
  ASSERT_EQ(entries.size(), 8U);
  EXPECT_EQ(entries[0].hits, 1);
  EXPECT_EQ(entries[0].n_users, 0);
  EXPECT_EQ(entries[0].cache.entries_kept, 6 * 80);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

TEST_F(BatchTest, ConcurrentRequestsReadASharedContextOnce) {
  const auto batch = make_batch();  // keeps no contexts
  std::vector<Listener> listeners(6);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    BatchRequest request = batch_request(600, 10, 3, batch_options(), 8);
    request.prompt[1] = static_cast<Token>(i);
    batch->submit(request, listeners[i].callbacks());
  }
  for (Listener& listener : listeners) EXPECT_EQ(listener.wait().reason, FinishReason::kLength);
  EXPECT_EQ(batch->statistics().prompt_tokens, 600 + 6 * 10);
  EXPECT_EQ(bytes_in_use(), 0U);
  EXPECT_EQ(batch->statistics().bytes_reserved, 0U);
}

TEST_F(BatchTest, LeastRecentlyUsedContextsGo) {
  // A context of 320 tokens, kept whole, takes 6 heads * 10 pages * 32 entries * (2 * 64 + 2) bytes.
  const std::size_t one = std::size_t{6} * 10 * 32 * 130;
  const std::size_t logits = std::size_t{300} * 4;
  // The page after it holds the prompt and the answer, and is stored once for the end of each.
  const auto batch = make_batch({.context_bytes = 2 * (one + 2 * one / 10 + 3 * logits)});
  const auto ask = [&](std::uint32_t seed) {
    Listener listener;
    batch->submit(batch_request(320, 5, seed, batch_options(), 3), listener.callbacks());
    return listener.wait().cached_tokens;
  };
  EXPECT_EQ(ask(1), 0);
  EXPECT_EQ(ask(2), 0);
  EXPECT_EQ(ask(1), 325);
  EXPECT_EQ(ask(3), 0);  // removes 2, and prompt ends, which are cheaper to read again
  EXPECT_GE(ask(1), 320);
  EXPECT_EQ(ask(2), 0);
  EXPECT_GE(batch->statistics().contexts_removed, 2);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

TEST_F(BatchTest, CancellationFreesPagesInEveryState) {
  const auto batch = make_batch({.n_parallel = 2});
  Listener reading, answering, queued, context;
  const std::uint64_t id_answering =
      batch->submit(batch_request(0, 40, 1, batch_options(), 1500), answering.callbacks());
  answering.wait_for_tokens(3);
  const std::uint64_t id_reading = batch->submit(batch_request(0, 1900, 2, batch_options(), 5), reading.callbacks());
  const std::uint64_t id_queued = batch->submit(batch_request(0, 50, 3, batch_options(), 5), queued.callbacks());
  queued.wait_for_acceptance();
  batch->cancel(id_queued);
  EXPECT_EQ(queued.wait().reason, FinishReason::kCancelled);
  batch->cancel(id_reading);
  EXPECT_EQ(reading.wait().reason, FinishReason::kCancelled);
  EXPECT_TRUE(reading.answer().empty());
  const std::uint64_t id_context = batch->submit(batch_request(1900, 5, 4, batch_options(), 5), context.callbacks());
  context.wait_for_acceptance();
  batch->cancel(id_context);
  EXPECT_EQ(context.wait().reason, FinishReason::kCancelled);
  batch->cancel(id_answering);
  batch->cancel(id_answering);
  batch->cancel(12345);
  EXPECT_EQ(answering.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(bytes_in_use(), 0U);
  EXPECT_EQ(batch->statistics().cancelled, 4);
  EXPECT_TRUE(batch->entries().empty());
}

TEST_F(BatchTest, AContextGoesOnForThoseWhoStay) {
  const auto batch = make_batch();
  Listener leaves, stays;
  // The answer is long enough to be still running when it is cancelled, however late this thread cancels it.
  const std::uint64_t id = batch->submit(batch_request(1800, 5, 4, batch_options(), 200), leaves.callbacks());
  batch->submit(batch_request(1800, 5, 4, batch_options(), 3), stays.callbacks());
  stays.wait_for_acceptance();
  batch->cancel(id);
  EXPECT_EQ(leaves.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(stays.wait().reason, FinishReason::kLength);
  EXPECT_EQ(stays.answer().size(), 3U);
}

TEST_F(BatchTest, RunningAnswersGoOnWhileAPromptIsRead) {
  const auto batch = make_batch();
  Listener answering, reading;
  batch->submit(batch_request(0, 40, 1, batch_options(), 400), answering.callbacks());
  answering.wait_for_tokens(3);
  const std::size_t before = answering.answer().size();
  batch->submit(batch_request(0, 1900, 2, batch_options(), 1), reading.callbacks());
  reading.wait_for_tokens(1);
  EXPECT_GT(answering.answer().size(), before + 3);
  answering.wait();
}

TEST_F(BatchTest, SeveralAnswersHaveSeedsOfTheirOwn) {
  const auto batch = make_batch();
  BatchRequest request = batch_request(0, 60, 1, batch_options(), 12);
  request.sampling = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 5};
  request.n_answers = 3;
  Listener three, second;
  batch->submit(request, three.callbacks());
  EXPECT_EQ(three.wait().answer_tokens, 36);
  EXPECT_EQ(three.finished().size(), 3U);
  EXPECT_NE(three.answer(0), three.answer(1));
  request.n_answers = 1;
  request.sampling.seed = 6;
  batch->submit(request, second.callbacks());
  second.wait();
  EXPECT_EQ(second.answer(), three.answer(1));
  // The number that means a random seed is none of them.
  request.n_answers = 2;
  request.sampling.seed = SamplingOptions{}.seed - 1;
  Listener once, again;
  for (Listener* listener : {&once, &again}) {
    batch->submit(request, listener->callbacks());
    listener->wait();
  }
  EXPECT_EQ(once.answer(1), again.answer(1));
}

TEST_F(BatchTest, TheRowsThatCutsWhileDecodingSaveAreCounted) {
  const auto bytes = [&](const char* method, int every) {
    SessionOptions options = batch_options(method, "40");
    options.decode_cut = SessionOptions::DecodeCut::kTotal;
    options.cut_every = every;
    return state_bytes(model_->info(), options);
  };
  EXPECT_EQ(bytes("h2o:window=64", 4), bytes("snapkv:window=64", 4));
  EXPECT_EQ(bytes("h2o:window=0", 4), bytes("snapkv:window=4", 4));
}

TEST_F(BatchTest, WhatARequestStillHasToSubmitIsTakenWhileItDrains) {
  const auto batch = make_batch();
  Listener first, second;
  std::atomic<bool> is_over = false;
  first.wants_token = [&](const BatchToken&) { return !is_over; };
  const std::uint64_t id = batch->submit(batch_request(0, 40, 1, batch_options(), 400), first.callbacks());
  first.wait_for_tokens(1);
  EXPECT_FALSE(batch->drain(0));
  const BatchRequest next = batch_request(0, 30, 2, batch_options(), 3);
  expect_error(ErrorCode::kCancelled, "shutting down", [&] { batch->submit(next, {}); });
  const std::uint64_t follows[] = {id};
  batch->submit(next, second.callbacks(), follows);
  is_over = true;
  EXPECT_TRUE(batch->drain(60));
  EXPECT_EQ(second.wait().reason, FinishReason::kLength);
  expect_error(ErrorCode::kCancelled, "shutting down", [&] { batch->submit(next, {}, follows); });
}

TEST_F(BatchTest, ACallbackThatThrowsHarmsNobody) {
  std::atomic<int> n_warnings = 0;
  const auto batch = make_batch({.on_warning = [&](const std::string&) { ++n_warnings; }});
  Listener throwing, other;
  BatchCallbacks callbacks = throwing.callbacks();
  callbacks.on_finish = [](int, FinishReason) { throw Error(ErrorCode::kCancelled, "no room for a next request"); };
  callbacks.on_done = [done = callbacks.on_done](const BatchResult& result) {
    done(result);
    throw std::runtime_error("no room for a next request");
  };
  batch->submit(batch_request(0, 40, 1, batch_options(), 3), std::move(callbacks));
  batch->submit(batch_request(0, 50, 2, batch_options(), 3), other.callbacks());
  EXPECT_EQ(throwing.wait().reason, FinishReason::kLength);
  EXPECT_EQ(other.wait().reason, FinishReason::kLength);
  EXPECT_TRUE(batch->drain(60));
  EXPECT_EQ(n_warnings, 2);
}

TEST_F(BatchTest, CallbacksMayThrowAnyType) {
  std::vector<std::string> warnings;
  const auto batch = make_batch({.on_warning = [&](const std::string& text) { warnings.push_back(text); }});
  using Change = void (*)(BatchCallbacks&);
  const Change throw_before_the_end[] = {
      [](BatchCallbacks& callbacks) { callbacks.on_accept = [] { throw 7; }; },
      [](BatchCallbacks& callbacks) { callbacks.on_prompt_token = [](const BatchToken&) { throw 7; }; },
      [](BatchCallbacks& callbacks) { callbacks.on_token = [](const BatchToken&) -> bool { throw 7; }; },
  };
  for (const int n_context : {0, 200}) {  // a long context is read in a prefill of its own
    for (const Change change : throw_before_the_end) {
      Listener throwing, next;
      BatchRequest request = batch_request(n_context, 30, 1, batch_options(), 3);
      request.n_prompt_probabilities = 1;
      BatchCallbacks callbacks = throwing.callbacks();
      change(callbacks);
      batch->submit(request, std::move(callbacks));
      EXPECT_EQ(throwing.wait().reason, FinishReason::kError);
      EXPECT_EQ(throwing.wait().error_code, ErrorCode::kInternal);
      EXPECT_NE(throwing.wait().error.find("not a std::exception"), std::string::npos) << throwing.wait().error;
      batch->submit(request, next.callbacks());
      EXPECT_EQ(next.wait().reason, FinishReason::kLength);
    }
  }
  Listener ended, next;
  BatchCallbacks callbacks = ended.callbacks();
  callbacks.on_finish = [](int, FinishReason) { throw 7; };
  callbacks.on_done = [done = callbacks.on_done](const BatchResult& result) {
    done(result);
    throw 7;
  };
  batch->submit(batch_request(0, 40, 1, batch_options(), 3), std::move(callbacks));
  EXPECT_EQ(ended.wait().reason, FinishReason::kLength);
  batch->submit(batch_request(0, 40, 1, batch_options(), 3), next.callbacks());
  EXPECT_EQ(next.wait().reason, FinishReason::kLength);
  EXPECT_TRUE(batch->drain(60));
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[0].find("not a std::exception"), std::string::npos) << warnings[0];
}

TEST_F(BatchTest, AThrowingCallbackFailsOnlyItsOwnRequestOfASharedContext) {
  const auto batch = make_batch({.n_parallel = 2});
  Listener throwing, other;
  BatchRequest request = batch_request(200, 30, 1, batch_options(), 3);
  request.n_prompt_probabilities = 1;
  BatchCallbacks callbacks = throwing.callbacks();
  callbacks.on_prompt_token = [](const BatchToken&) { throw std::runtime_error("a full disk"); };
  batch->submit(request, std::move(callbacks));
  batch->submit(request, other.callbacks());
  EXPECT_EQ(throwing.wait().error, "a full disk");
  EXPECT_EQ(other.wait().reason, FinishReason::kLength);
}

TEST_F(BatchTest, ProbabilitiesAreTheModelsOwn) {
  const auto batch = make_batch();
  BatchRequest request = batch_request(0, 30, 1, batch_options(), 3);
  request.n_probabilities = 300;
  Listener listener;
  batch->submit(request, listener.callbacks());
  listener.wait();
  for (const BatchToken& token : listener.tokens()) {
    ASSERT_EQ(token.top.size(), 300U);
    double sum = 0;
    for (const TokenProbability& one : token.top) sum += std::exp(one.log_probability);
    EXPECT_NEAR(sum, 1, 1e-4);
    EXPECT_EQ(token.top[0].token, token.token);  // greedy
    EXPECT_FLOAT_EQ(token.top[0].log_probability, token.log_probability);
  }
}

// The rows by which a file pads the output matrix have no text, so they are nobody's likeliest tokens.
TEST(BatchVocabularyTest, TheLikeliestTokensAreOfTheVocabulary) {
  const TinyModel file(
      {.n_vocab = 1000, .edit_metadata = [](gguf_context* metadata) { set_byte_pairs(metadata, "gpt-2", 12); }});
  const std::shared_ptr<const Model> model = Model::load(file.path());
  const auto n_tokens = static_cast<std::size_t>(model->impl().tokenizer.n_vocab());
  ASSERT_LT(n_tokens, 1000U);
  Batch batch(Engine::create(model, {.n_threads = 1, .n_batch = 64}), {});
  BatchRequest request = batch_request(0, 30, 1, batch_options(), 3);
  request.n_probabilities = request.n_prompt_probabilities = 1000;
  Listener listener;
  batch.submit(request, listener.callbacks());
  EXPECT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
  std::vector<BatchToken> tokens = listener.tokens();
  ASSERT_EQ(tokens.size(), 3U);
  tokens.push_back(listener.prompt().back());
  for (const BatchToken& token : tokens) {
    ASSERT_EQ(token.top.size(), n_tokens);
    for (const TokenProbability& one : token.top) EXPECT_NO_THROW(model->token_text(one.token));
  }
}

// Returns the prompt's log probabilities as a session alone computes them, after the request's context if it has one.
std::vector<float> log_probabilities_alone(Engine& engine, const BatchRequest& request) {
  Session session = engine.open(request.session);
  std::vector<std::vector<float>> rows;
  const PrefillOptions options{.on_logits = [&](std::int32_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  }};
  std::vector<float> values;
  if (request.context.empty()) {
    values.push_back(std::numeric_limits<float>::quiet_NaN());
    session.prefill(request.prompt, options);
  } else {
    session.prefill(request.context);
    rows.emplace_back(session.logits().begin(), session.logits().end());
    session.append(request.prompt, options);
  }
  for (std::size_t i = values.size(); i < request.prompt.size(); ++i) {
    const std::vector<float>& row = rows[i - (request.context.empty() ? 1 : 0)];
    values.push_back(row[static_cast<std::size_t>(request.prompt[i])] - static_cast<float>(log_sum_exp(row)));
  }
  return values;
}

TEST_F(BatchTest, PromptsHaveProbabilities) {
  const auto batch = make_batch({.context_bytes = 16 << 20});
  const SessionOptions cut = batch_options("streaming-llm", "25%");
  for (const auto& [n_context, options] : {std::pair(0, batch_options()), std::pair(40, batch_options()),
                                           std::pair(400, batch_options()), std::pair(100, cut), std::pair(0, cut)}) {
    for (const bool has_answer : {true, false}) {
      BatchRequest request = batch_request(n_context, 70, 3, options, 2);
      request.n_prompt_probabilities = 4;
      request.has_answer = has_answer;
      const std::vector<float> alone = log_probabilities_alone(*engine_, request);
      for (int time = 0; time < 3; ++time) {  // the context is cached from the second time on
        Listener listener;
        batch->submit(request, listener.callbacks());
        EXPECT_EQ(listener.wait().reason, FinishReason::kLength);
        EXPECT_EQ(listener.tokens().size(), has_answer ? 2U : 0U);
        const std::vector<BatchToken> prompt = listener.prompt();
        ASSERT_EQ(prompt.size(), request.prompt.size());
        for (std::size_t i = 0; i < prompt.size(); ++i) {
          EXPECT_EQ(prompt[i].token, request.prompt[i]);
          if (std::isnan(alone[i])) {
            EXPECT_TRUE(std::isnan(prompt[i].log_probability));
            EXPECT_TRUE(prompt[i].top.empty());
            continue;
          }
          // A short context is read with the prompt, by products of more rows.
          EXPECT_NEAR(prompt[i].log_probability, alone[i], n_context == 40 ? 0.1 : 1e-5) << i << ", " << n_context;
          ASSERT_EQ(prompt[i].top.size(), 4U);
          EXPECT_GE(prompt[i].top[0].log_probability, prompt[i].log_probability);
        }
      }
    }
  }
}

TEST_F(BatchTest, TheCallerStopsAnAnswer) {
  const auto batch = make_batch();
  Listener listener;
  listener.wants_token = [n = 0](const BatchToken&) mutable { return ++n < 4; };
  batch->submit(batch_request(0, 30, 1, batch_options(), 100), listener.callbacks());
  EXPECT_EQ(listener.wait().reason, FinishReason::kStopped);
  EXPECT_EQ(listener.answer().size(), 4U);
}

TEST_F(BatchTest, WrongRequestsReachOnDone) {
  const auto batch = make_batch();
  const auto expect_refused = [&](ErrorCode code, const std::function<void(BatchRequest&)>& change) {
    BatchRequest request = batch_request(0, 30, 1, batch_options(), 5);
    change(request);
    Listener listener;
    batch->submit(request, listener.callbacks());
    EXPECT_EQ(listener.wait().reason, FinishReason::kError);
    EXPECT_EQ(listener.wait().error_code, code) << listener.wait().error;
    EXPECT_FALSE(listener.wait().started);
    EXPECT_GT(listener.wait().error.size(), 20U);
  };
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.prompt.clear(); });
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.prompt[3] = 300; });
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.max_tokens = 0; });
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.n_answers = 9; });
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.sampling.grammar = "root ::= ("; });
  expect_refused(ErrorCode::kInvalidArgument, [](BatchRequest& r) { r.sampling.top_p = 2; });
  expect_refused(ErrorCode::kInvalidArgument,
                 [](BatchRequest& r) { r.session = batch_options("snapkv:sinks=4", "2"); });
  expect_refused(ErrorCode::kContextFull, [](BatchRequest& r) { r.prompt = random_tokens(2048, 300, 1); });
  // Answers are cut to what the context holds.
  Listener last;
  batch->submit(batch_request(0, 2046, 1, batch_options(), 100), last.callbacks());
  EXPECT_EQ(last.wait().reason, FinishReason::kLength);
  EXPECT_EQ(last.answer().size(), 2U);
  EXPECT_EQ(bytes_in_use(), 0U);
}

TEST_F(BatchTest, SavedQueriesAreReservedAsPagesAre) {
  // A client can ask for 3 layers * 900,000 rows * 4 heads of 32 floats, 1.3 GiB, with one option.
  const auto batch = make_batch({.context_bytes = 1 << 20}, std::size_t{64} << 20);
  const std::string method = "snapkv:window=900000";
  for (const int n_context : {0, 40}) {
    Listener listener;
    batch->submit(batch_request(n_context, 40, 1, batch_options(method, "50%"), 4), listener.callbacks());
    EXPECT_EQ(listener.wait().error_code, ErrorCode::kInvalidArgument);
    EXPECT_NE(listener.wait().error.find("no budget makes it fit"), std::string::npos) << listener.wait().error;
  }
  // Contexts with a window of 100 rows hold 150 KiB of queries each, far more than their pages.
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    Listener listener;
    batch->submit(batch_request(128, 5, seed, batch_options("snapkv:window=100", "110"), 1), listener.callbacks());
    EXPECT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
  }
  EXPECT_LE(batch->entries().size(), 6U);
  EXPECT_GE(batch->entries().size(), 2U);
  EXPECT_LE(batch->statistics().bytes_reserved, std::size_t{1} << 20);
}

TEST_F(BatchTest, ThingsThatDoNotFitWaitAndWhatNeverFitsIsRefused) {
  // 600 tokens in full take about 0.5 MiB of pages and 0.3 MiB of hidden states and staging.
  const auto batch = make_batch({.n_parallel = 8}, std::size_t{1200} << 10);
  Listener too_large;
  batch->submit(batch_request(0, 1500, 1, batch_options(), 10), too_large.callbacks());
  EXPECT_EQ(too_large.wait().error_code, ErrorCode::kInvalidArgument);
  EXPECT_NE(too_large.wait().error.find("a budget of "), std::string::npos) << too_large.wait().error;
  // The budget that the error names fits.
  const std::string& text = too_large.wait().error;
  const std::string percentage = text.substr(text.find("a budget of ") + 12, 3);
  Listener fits;
  batch->submit(batch_request(0, 1500, 1, batch_options("snapkv", percentage.substr(0, percentage.find('%') + 1)), 10),
                fits.callbacks());
  EXPECT_EQ(fits.wait().reason, FinishReason::kLength) << fits.wait().error;

  std::vector<Listener> listeners(6);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    batch->submit(batch_request(0, 600, static_cast<std::uint32_t>(i), batch_options(), 20), listeners[i].callbacks());
  }
  for (Listener& listener : listeners) EXPECT_EQ(listener.wait().reason, FinishReason::kLength);
  EXPECT_LE(engine_->memory().kv_bytes_peak, std::size_t{1200} << 10);
  EXPECT_EQ(bytes_in_use(), 0U);
}

TEST_F(BatchTest, ReservationsHoldForManyBudgets) {
  // Every request that is admitted runs: a kOutOfMemory here would mean that too little was reserved.
  const auto batch = make_batch({.n_parallel = 6, .max_queued = 100, .context_bytes = std::size_t{300} << 10},
                                std::size_t{1400} << 10);
  std::vector<Listener> listeners(60);
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    const auto n = static_cast<int>(i);
    const std::string method =
        std::vector<std::string>{"snapkv:window=8", "lava:window=8", "tova", "keydiff:window=8"}[i % 4];
    BatchRequest request = batch_request(n % 2 == 0 ? 0 : 150 + 30 * (n % 5), 170 + 3 * n, 5 + i % 4,
                                         batch_options(method, std::to_string(20 + n) + "%"), 1 + 2 * n);
    request.n_answers = 1 + n % 3;
    batch->submit(request, listeners[i].callbacks());
  }
  for (Listener& listener : listeners)
    EXPECT_EQ(listener.wait().reason, FinishReason::kLength) << listener.wait().error;
  EXPECT_LE(engine_->memory().kv_bytes_peak, std::size_t{1400} << 10);
  EXPECT_EQ(bytes_in_use(), batch->statistics().context_bytes);
}

// The memory for a cut is taken away in the middle of an answer: its request fails, and the others go on.
TEST_F(BatchTest, AFailedCutFailsItsOwnRequestOnly) {
  constexpr std::size_t kLimit = std::size_t{64} << 20;
  constexpr int kCutEvery = 12;
  // Neither of the other requests needs a new page of 32 entries while the memory is taken away.
  const BatchRequest before = batch_request(0, 65, 1, batch_options(), 30);
  const BatchRequest after = batch_request(0, 40, 3, batch_options(), 20);
  BatchRequest cut = batch_request(0, 100, 2, batch_options("snapkv:window=8", "40"), 100);
  cut.session.decode_cut = SessionOptions::DecodeCut::kTotal;
  cut.session.cut_every = kCutEvery;
  cut.n_answers = 2;  // they share pages, which the cut would have to copy
  std::vector<std::vector<Token>> alone;
  for (const BatchRequest& request : {before, after}) {
    const auto batch = make_batch({}, kLimit);
    Listener listener;
    batch->submit(request, listener.callbacks());
    listener.wait();
    alone.push_back(listener.answer());
  }

  const auto batch = make_batch({.n_parallel = 8, .prefill_share = 1000}, kLimit);
  Listener first, failing, last;
  std::mutex submitting;
  first.wants_token = [&](const BatchToken&) {
    const std::lock_guard all_submitted(submitting);
    return true;
  };
  std::shared_ptr<void> taken;
  int n_cut = 0;
  std::size_t n_first = 0, n_last = 0;  // tokens of the others when the memory is taken away
  failing.wants_token = [&](const BatchToken& token) {
    if (token.answer == 1 && ++n_cut == kCutEvery) {
      taken = engine_->impl().pool->reserve(kLimit - bytes_in_use());
      n_first = first.answer().size();
      n_last = last.answer().size();
    }
    return true;
  };
  {
    const std::lock_guard lock(submitting);
    batch->submit(before, first.callbacks());
    batch->submit(cut, failing.callbacks());
    batch->submit(after, last.callbacks());
  }
  EXPECT_EQ(failing.wait().reason, FinishReason::kError);
  EXPECT_EQ(failing.wait().error_code, ErrorCode::kOutOfMemory) << failing.wait().error;
  taken.reset();
  EXPECT_EQ(failing.answer(1).size(), static_cast<std::size_t>(kCutEvery));
  EXPECT_EQ(first.wait().reason, FinishReason::kLength) << first.wait().error;
  EXPECT_EQ(last.wait().reason, FinishReason::kLength) << last.wait().error;
  EXPECT_LT(n_first, alone[0].size());
  EXPECT_GT(n_last, 0U);
  EXPECT_LT(n_last, alone[1].size());
  EXPECT_EQ(first.answer(), alone[0]);
  EXPECT_EQ(last.answer(), alone[1]);
  EXPECT_EQ(bytes_in_use(), 0U);
}

TEST_F(BatchTest, AStepsMemoryIsReservedAndGoesWithItsAnswers) {
  const auto batch = make_batch({.n_parallel = 8});
  const std::size_t before = engine_->memory().graph_bytes;
  const std::size_t per_answer = step_bytes_per_sequence(model_->info());
  Listener listener;
  std::size_t at_work = 0, reserved = 0;
  listener.wants_token = [&](const BatchToken&) {
    at_work = std::max(at_work, engine_->memory().graph_bytes);
    reserved = std::max(reserved, batch->statistics().bytes_reserved);
    return true;
  };
  BatchRequest request = batch_request(0, 20, 1, batch_options(), 10);
  request.n_answers = 8;
  batch->submit(request, listener.callbacks());
  EXPECT_EQ(listener.wait().reason, FinishReason::kLength);
  EXPECT_GE(at_work, before + std::size_t{8} * 300 * sizeof(float));
  EXPECT_GE(reserved, 8 * per_answer);
  // The batch frees a step's memory once it is idle or reads another prompt. The memory of slices stays allocated.
  wait_until([&] { return engine_->memory().graph_bytes + std::size_t{8} * 300 * sizeof(float) <= at_work; });
}

TEST_F(BatchTest, AFullQueueRefuses) {
  const auto batch = make_batch({.n_parallel = 1, .max_queued = 2});
  Listener running;
  const std::uint64_t id = batch->submit(batch_request(0, 40, 1, batch_options(), 1900), running.callbacks());
  running.wait_for_tokens(2);
  std::vector<Listener> waiting(2);
  for (Listener& listener : waiting) batch->submit(batch_request(0, 40, 1, batch_options(), 2), listener.callbacks());
  Listener refused;
  try {
    batch->submit(batch_request(0, 40, 1, batch_options(), 2), refused.callbacks());
    ADD_FAILURE() << "no error";
  } catch (const QueueFull& error) {
    EXPECT_GE(error.retry_after_s, 1);
  }
  EXPECT_EQ(batch->statistics().refused, 1);
  EXPECT_EQ(batch->statistics().n_queued, 2);
  batch->cancel(id);
  for (Listener& listener : waiting) EXPECT_EQ(listener.wait().reason, FinishReason::kLength);
}

TEST_F(BatchTest, DrainingEndsWhatRunsAndRefusesTheRest) {
  const auto batch = make_batch();
  Listener running, late;
  batch->submit(batch_request(0, 40, 1, batch_options(), 200), running.callbacks());
  EXPECT_TRUE(batch->drain(60));
  EXPECT_TRUE(running.is_done());
  EXPECT_EQ(running.answer().size(), 200U);
  test::expect_error(ErrorCode::kCancelled, "shutting down",
                     [&] { batch->submit(batch_request(0, 40, 1, batch_options(), 2), late.callbacks()); });
}

TEST_F(BatchTest, DestructionCancelsWhatIsLeft) {
  auto batch = make_batch({.n_parallel = 1});
  Listener running, queued;
  batch->submit(batch_request(0, 40, 1, batch_options(), 1900), running.callbacks());
  batch->submit(batch_request(0, 40, 1, batch_options(), 1900), queued.callbacks());
  EXPECT_FALSE(batch->drain(0.01));
  batch.reset();
  EXPECT_EQ(running.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(queued.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(bytes_in_use(), 0U);
}

TEST_F(BatchTest, CallsFromManyThreads) {
  const auto batch = make_batch({.n_parallel = 4, .max_queued = 200, .context_bytes = std::size_t{1} << 20});
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        Listener listener;
        const std::uint64_t id = batch->submit(
            batch_request(100 * (i % 3), 20, static_cast<std::uint32_t>(i), batch_options(), 10), listener.callbacks());
        if ((i + t) % 3 == 0) batch->cancel(id);
        batch->statistics();
        batch->entries();
        listener.wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const BatchStatistics statistics = batch->statistics();
  EXPECT_EQ(statistics.finished + statistics.cancelled, 48);
  EXPECT_EQ(bytes_in_use(), statistics.context_bytes);
}

TEST_F(BatchTest, OptionsThatCannotBe) {
  test::expect_error(ErrorCode::kInvalidArgument, "n_parallel is 0: give 1 to 256",
                     [&] { make_batch({.n_parallel = 0}); });
  test::expect_error(ErrorCode::kInvalidArgument, "max_queued is -1", [&] { make_batch({.max_queued = -1}); });
  test::expect_error(ErrorCode::kInvalidArgument, "saved contexts need memory",
                     [&] { make_batch({.cache_dir = "x"}); });
  test::expect_error(ErrorCode::kInvalidArgument, "needs a folder", [&] { make_batch({.cache_dir_bytes = 1}); });
  test::expect_error(ErrorCode::kInvalidArgument, "save_after_s is -1: give 0 or more",
                     [&] { make_batch({.save_after_s = -1}); });
  test::expect_error(ErrorCode::kIo, "cannot make the folder",
                     [&] { make_batch({.context_bytes = 1 << 20, .cache_dir = "/proc/none/here"}); });
}

}  // namespace
}  // namespace winnow::test
