// Loss budgets: the losses that are measured, the cut that is taken, and later turns.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "engine/engine_test_support.h"
#include "engine/prefill/loss_search.h"
#include "expect_error.h"
#include "model/tiny_architectures.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

constexpr std::int32_t kPrompt = 700;

SessionOptions options_of(const std::string& method, const std::string& budget) {
  SessionOptions options;
  options.eviction = EvictionOptions::parse(method);
  options.budget = Budget::parse(budget);
  return options;
}

LossPromise promise_of(const Session& session) { return session.statistics().promise.value(); }

std::vector<double> losses_of(const LossPromise& promise) {
  std::vector<double> kl;
  for (const LossPromise::Trial& trial : promise.tried) kl.push_back(trial.kl);
  return kl;
}

TEST(PromisedLoss, TakesTheSmallestCutThatKeepsToIt) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(kPrompt, 300, 4);
  for (const char* method :
       {"auto", "auto:bits=4", "kvzip", "kvzip+:fit=values,bits=4", "kvzip:layers=uniform,heads=ada,bits=4"}) {
    Session any = engine->open(options_of(method, "kl=10"));
    any.prefill(prompt);
    const LossPromise first = promise_of(any);
    ASSERT_EQ(first.tried.size(), 1U) << method;
    EXPECT_GT(first.tried[0].kl, 0.0) << method;
    // This loss is less than that of the smallest cut.
    char less[32];
    std::snprintf(less, sizeof less, "kl=%.7f", 0.999 * first.expected);
    Session session = engine->open(options_of(method, less));
    session.prefill(prompt);
    const LossPromise promise = promise_of(session);
    ASSERT_GE(promise.tried.size(), 2U) << method;
    EXPECT_EQ(promise.tried[0].kl, first.tried[0].kl) << method;
    for (std::size_t i = 1; i < promise.tried.size(); ++i) {
      EXPECT_GT(promise.tried[i].budget.amount, promise.tried[i - 1].budget.amount) << method;
    }
    EXPECT_EQ(promise.taken.text(), promise.tried.back().budget.text()) << method;
    EXPECT_LE(promise.expected, promise.asked) << method;
    EXPECT_EQ(promise.n_tokens, kPrompt / 8) << method;
    const double most = promise.taken.amount * kPrompt * 6 * 2 * 32 * 2;
    EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most) << method;
    EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), most - 6 * kPageEntries * 40) << method;
    EXPECT_EQ(logits_of(session), logits_of(any));  // logits of the prompt's own pass
  }
}

// The cut that is taken equals the cut to the same fraction of the bytes.
TEST(PromisedLoss, IsTheCutOfThatSize) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(kPrompt, 300, 4), later = random_tokens(5, 300, 6);
  for (const char* method :
       {"auto:repeat=always", "auto:bits=4,repeat=always", "auto:bits=8:0.2,4,repeat=always",
        "kvzip:layers=uniform,heads=uniform,bits=4", "kvzip+", "kvzip:layers=uniform,heads=ada,fit=values", "kvzip"}) {
    Session session = engine->open(options_of(method, "kl=10"));
    session.prefill(prompt);
    // For a loss, `auto` chooses among 8 and 4 bits: for a cut as small as this one 4.
    const bool chooses_bits = std::string_view(method) == "auto:repeat=always";
    if (chooses_bits) {
      ASSERT_LT(promise_of(session).taken.amount, 0.08);
    }
    Session direct =
        engine->open(options_of(chooses_bits ? "auto:bits=4,repeat=always" : method, promise_of(session).taken.text()));
    direct.prefill(prompt);
    EXPECT_EQ(kept_positions(session), kept_positions(direct)) << method;
    EXPECT_EQ(session.statistics().bytes_kept, direct.statistics().bytes_kept) << method;
    // Keys that were among the best ones at first are coded in 8 bits before they are coded in 4.
    if (chooses_bits || std::string_view(method).find("8:") != std::string_view::npos) continue;
    EXPECT_EQ(decode_all(session, later), decode_all(direct, later)) << method;
  }
}

// Every tried cut is repeated by hand: the held-out tokens read the entries that it keeps of the text before them.
TEST(PromisedLoss, IsMeasuredOnTheLastTokens) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(kPrompt, 300, 4);
  const auto text = std::span(prompt);
  for (const char* method : {"kvzip", "kvzip+", "kvzip:layers=uniform,heads=uniform"}) {
    std::string budget = "kl=10";
    LossPromise promise;
    for (int i = 0; i < 4; ++i) {
      Session session = engine->open(options_of(method, budget));
      try {
        session.prefill(prompt);
      } catch (const Error&) {
        break;  // no cut keeps to so little
      }
      promise = promise_of(session);
      char less[32];
      std::snprintf(less, sizeof less, "kl=%.7f", 0.999 * promise.expected);
      budget = less;
    }
    ASSERT_GE(promise.tried.size(), 2U) << method;
    const std::int32_t end = kPrompt - promise.n_tokens;
    std::vector<std::vector<float>> expected;
    engine->open().prefill(prompt, {.on_progress = {}, .on_logits = [&](std::int32_t p, std::span<const float> logits) {
                                      if (p >= end) expected.emplace_back(logits.begin(), logits.end());
                                    }});
    for (const LossPromise::Trial& trial : promise.tried) {
      Session direct = engine->open(options_of(method, trial.budget.text()));
      direct.prefill(prompt);
      Session cut = engine->open();
      cut.prefill(text.first(static_cast<std::size_t>(end)));
      for (int l = 0; l < 3; ++l) {
        for (int h = 0; h < 2; ++h) {
          std::vector<std::int32_t> kept = direct.positions(l, h);
          std::erase_if(kept, [&](std::int32_t p) { return p >= end; });
          cut.impl().cache.keep(l, h, kept);
        }
      }
      double kl = 0;
      cut.append(text.subspan(static_cast<std::size_t>(end)),
                 {.on_progress = {}, .on_logits = [&](std::int32_t p, std::span<const float> logits) {
                    if (p - end < promise.n_tokens / 4) return;
                    const std::vector<float>& row = expected[static_cast<std::size_t>(p - end)];
                    kl += winnow::kl_divergence(row, log_sum_exp(row), logits, log_sum_exp(logits));
                  }});
      const int n_counted = promise.n_tokens - promise.n_tokens / 4;
      EXPECT_NEAR(trial.kl, kl / n_counted, 1e-3 * trial.kl) << method << " " << trial.budget.text();
    }
  }
}

TEST(PromisedLoss, IsTheSameInCompany) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(kPrompt, 300, 4), later = random_tokens(3, 300, 6);
  const auto open_all = [&] {
    std::vector<Session> sessions;
    sessions.push_back(engine->open());
    sessions.push_back(engine->open(options_of("auto", "kl=10")));
    sessions.push_back(engine->open(options_of("auto:repeat=always", "12%bytes")));
    sessions.push_back(engine->open(options_of("kvzip", "kl=9")));
    sessions.push_back(engine->open(options_of("kvzip+:fit=values", "kl=8")));
    return sessions;
  };
  std::vector<Session> together = open_all(), alone = open_all();
  std::vector<Session*> pointers;
  for (Session& session : together) pointers.push_back(&session);
  engine->prefill(pointers, prompt);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].prefill(prompt);
    EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i])) << i;
    EXPECT_EQ(together[i].statistics().promise.has_value(), alone[i].statistics().promise.has_value()) << i;
    if (alone[i].statistics().promise) {
      EXPECT_EQ(losses_of(promise_of(together[i])), losses_of(promise_of(alone[i])));
    }
    EXPECT_EQ(decode_all(together[i], later), decode_all(alone[i], later)) << i;
  }
}

TEST(PromisedLoss, HoldsItsSizeInLaterTurnsForksAndFiles) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(kPrompt, 300, 4), turn = random_tokens(90, 300, 5);
  const std::string path = testing::TempDir() + "promised_loss.session";
  for (const char* method : {"auto", "auto:bits=4"}) {
    Session session = engine->open(options_of(method, "kl=10"));
    session.prefill(prompt);
    const LossPromise promise = promise_of(session);
    Session fork = session.fork();
    session.save(path);
    Session loaded = engine->load_session(path);
    EXPECT_EQ(loaded.options().budget->text(), "kl=10");
    EXPECT_EQ(losses_of(promise_of(loaded)), losses_of(promise));
    EXPECT_EQ(promise_of(loaded).taken.text(), promise.taken.text());
    EXPECT_EQ(promise_of(loaded).n_tokens, promise.n_tokens);
    for (Session* each : {&session, &fork, &loaded}) each->prefill(turn);
    const double most = promise.taken.amount * (kPrompt + 90) * 6 * 2 * 32 * 2;
    EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most) << method;
    EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), 0.8 * most) << method;
    for (Session* each : {&fork, &loaded}) {
      EXPECT_EQ(kept_positions(*each), kept_positions(session)) << method;
      EXPECT_EQ(logits_of(*each), logits_of(session)) << method;
    }
    session.clear();
    EXPECT_FALSE(session.statistics().promise.has_value());
    session.prefill(prompt);
    EXPECT_EQ(losses_of(promise_of(session)), losses_of(promise)) << method;
  }
  std::filesystem::remove(path);
}

TEST(PromisedLoss, AShortPromptIsKeptWhole) {
  const auto engine = wide_engine();
  for (const std::int32_t n : {1, 4, 5, 36, 255}) {
    Session session = engine->open(options_of("auto", "kl=0.01"));
    session.prefill(random_tokens(n, 300, 4));
    EXPECT_EQ(session.statistics().entries_kept, session.statistics().entries_full) << n;
    EXPECT_EQ(promise_of(session).n_tokens, 0) << n;
    // The entries are in 8 bits, since no cut was measured.
    std::int64_t n_high = 0;
    for (const kernels::EntryRun& run : session.impl().cache.entries(0, 0).runs) {
      if (run.key_type == EntryType::kQ8_0) n_high += run.n_entries;
    }
    EXPECT_EQ(n_high, std::max(n - kPlainEntries, 0) / kPageEntries * kPageEntries) << n;
    session.prefill(random_tokens(40, 300, 5));
    EXPECT_EQ(session.statistics().entries_kept, session.statistics().entries_full) << n;
  }
  Session session = engine->open(options_of("auto", "kl=10"));
  session.prefill(random_tokens(256, 300, 4));
  EXPECT_EQ(promise_of(session).n_tokens, 32);
  EXPECT_LT(session.statistics().entries_kept, session.statistics().entries_full);
}

TEST(PromisedLoss, WindowsOfSlidingLayersAreAsWithoutIt) {
  const TinyModelOptions options{
      .sliding_window = 40,
      .layers = {{.n_head = 4, .n_kv_head = 2, .key_dim = 32, .value_dim = 32, .n_ff = 96, .slides = true},
                 {.n_head = 6, .n_kv_head = 3, .key_dim = 16, .value_dim = 48, .n_ff = 64, .slides = false},
                 {.n_head = 2, .n_kv_head = 1, .key_dim = 48, .value_dim = 32, .n_ff = 32, .slides = false}}};
  const auto engine = Engine::create(tiny_model(options), {.n_threads = 2, .n_batch = 64});
  const std::vector<Token> prompt = random_tokens(500, 60, 4), later = random_tokens(50, 60, 6);
  Session session = engine->open(options_of("kvzip:window=8", "kl=10"));
  session.prefill(prompt);
  Session direct = engine->open(options_of("kvzip:window=8", promise_of(session).taken.text()));
  direct.prefill(prompt);
  EXPECT_EQ(kept_positions(session), kept_positions(direct));
  EXPECT_EQ(session.statistics().bytes_in_pages, direct.statistics().bytes_in_pages);
  EXPECT_EQ(decode_all(session, later), decode_all(direct, later));
}

TEST(PromisedLoss, WhatCannotBePromisedIsAnError) {
  const auto engine = wide_engine();
  SessionOptions options = options_of("auto", "kl=0.02");
  options.prefill_chunk = 128;
  expect_error(ErrorCode::kUnsupported, "chunked", [&] { engine->open(options); });

  for (const char* method : {"snapkv", "auto-fast", "random"}) {
    expect_error(ErrorCode::kUnsupported, "second pass", [&] { engine->open(options_of(method, "kl=0.02")); });
  }

  // A loss that no cut of the ladder keeps to leaves the session as it was.
  Session session = engine->open(options_of("kvzip", "kl=0.0001"));
  expect_error(ErrorCode::kInvalidArgument, "allow more", [&] { session.prefill(random_tokens(kPrompt, 300, 4)); });
  EXPECT_EQ(session.n_tokens(), 0);
  EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
  EXPECT_FALSE(session.statistics().promise.has_value());

  Session fed = engine->open(options_of("auto", "kl=0.02"));
  fed.append(random_tokens(300, 300, 4));
  expect_error(ErrorCode::kUnsupported, "first prompt", [&] { fed.prefill(random_tokens(300, 300, 5)); });
}

TEST(PromisedLoss, TakesNoMoreThanWasEstimated) {
  const auto engine = wide_engine();
  for (const char* method : {"auto", "auto:bits=4", "kvzip", "kvzip:bits=8:0.4,4"}) {
    for (const std::int32_t n : {100, 300, kPrompt}) {
      const SessionOptions options = options_of(method, "kl=10");
      const MemoryEstimate estimate = engine->estimate(options, n, 40);
      Session session = engine->open(options);
      engine->reset_peak();
      session.prefill(random_tokens(n, 300, 2));
      session.append(random_tokens(40, 300, 3));
      EXPECT_LE(engine->memory().kv_bytes_peak, estimate.kv_bytes_peak) << method << " " << n;
      EXPECT_LE(session.statistics().hidden_bytes, estimate.hidden_bytes) << method << " " << n;
    }
  }
}

}  // namespace
}  // namespace winnow::test
