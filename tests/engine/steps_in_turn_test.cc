// Ranks that work on different steps at the same time: every sequence has the results that it has alone on one engine.
#include "engine/steps_in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/pipeline_test_support.h"

namespace winnow::test {
namespace {

SessionOptions cut_while_decoding(const std::string& method, SessionOptions::DecodeCut decode_cut, int cut_every) {
  SessionOptions options = evicting_options(method, "30%");
  options.decode_cut = decode_cut;
  options.cut_every = cut_every;
  return options;
}

std::vector<Session> read_sessions(Engine& engine, const std::vector<SessionOptions>& options) {
  std::vector<Session> sessions;
  for (const SessionOptions& of_session : options) {
    sessions.push_back(engine.open(of_session));
    sessions.back().prefill(random_tokens(90 + static_cast<int>(sessions.size()), 300, 4));
  }
  return sessions;
}

// Steps of one sequence each, all of them under way at the same time, or one after the other on one engine.
class Turns {
 public:
  explicit Turns(Engine& engine) : engine_(engine) {}
  void start(Session& session, Token token) {
    Session* one = &session;
    if (n_steps_at_once(engine_) > 1) return start_step(engine_, std::span(&one, 1), std::span(&token, 1));
    session.decode(token);
  }
  void finish() {
    if (n_steps_at_once(engine_) > 1) finish_step(engine_);
  }

 private:
  Engine& engine_;
};

// Runs rounds of steps for sequences that are cut in different ways, while another prompt is read and one sequence ends
// in the middle of its step.
Seen rounds(Engine& engine) {
  using Cut = SessionOptions::DecodeCut;
  Seen seen;
  std::vector<Session> sessions = read_sessions(
      engine, {full_options(), cut_while_decoding("snapkv", Cut::kTotal, 3), cut_while_decoding("lava", Cut::kOwn, 1),
               cut_while_decoding("streaming-llm", Cut::kTotal, 2)});
  std::optional<Session> ending = engine.open(cut_while_decoding("snapkv", Cut::kTotal, 1));
  ending->prefill(random_tokens(100, 300, 4));
  Session reading = engine.open(evicting_options("snapkv", "30%"));
  Session* of_reading = &reading;
  Prefill prefill = engine.start_prefill(std::span(&of_reading, 1), random_tokens(6 * kBatch, 300, 5));
  bool is_reading = true;
  Turns turns(engine);
  for (Token token = 3; token < 12; ++token) {
    for (Session& session : sessions) turns.start(session, token);
    const bool ends = token == 7;
    if (ends) turns.start(*ending, token);
    is_reading = is_reading && prefill.step();
    if (ends) ending.reset();
    for (Session& session : sessions) {
      turns.finish();
      seen.look(session);
    }
    if (ends) turns.finish();
  }
  while (is_reading) is_reading = prefill.step();
  seen.look(reading);
  std::vector<Session*> all;
  for (Session& session : sessions) all.push_back(&session);
  engine.decode(all, std::vector<Token>{3, 4, 5, 6});
  for (const Session& session : sessions) seen.look(session);
  return seen;
}

TEST(StepsInTurn, AreThoseOfOneEngine) {
  const auto model = tiny_model({.n_layer = 5});
  for (const std::vector<int>& first_layers : {std::vector<int>{2}, {1, 3}, {1, 2, 3, 4}}) {
    expect_led(model, first_layers, rounds);
    expect_same(model, first_layers, rounds);
  }
}

// A step of another width needs another graph, and a step that throws does not count as one under way.
TEST(StepsInTurn, AreRefusedWithoutATrace) {
  const auto model = tiny_model({.n_layer = 3});
  expect_led(model, {1}, [](Engine& engine) {
    Seen seen;
    SessionOptions short_options = full_options();
    short_options.n_ctx = 93;
    std::vector<Session> sessions = read_sessions(engine, {full_options(), full_options(), short_options});
    std::vector<Session*> first = {&sessions[0]}, others = {&sessions[1], &sessions[2]},
                          again = {&sessions[1], &sessions[0]};
    const std::vector<Token> one = {5}, two = {6, 7};
    if (n_steps_at_once(engine) == 1) {
      engine.decode(first, one);
    } else {
      expect_error(ErrorCode::kInvalidArgument, [&] { finish_step(engine); });
      start_step(engine, first, one);
      expect_error(ErrorCode::kContextFull, [&] { start_step(engine, others, two); });
      expect_error(ErrorCode::kInvalidArgument, [&] { start_step(engine, again, two); });
      expect_error(ErrorCode::kInvalidArgument, [&] { engine.decode(std::span(&others[0], 1), one); });
      expect_error(ErrorCode::kInvalidArgument, [&] { sessions[0].truncate(20); });
      expect_error(ErrorCode::kInvalidArgument, [&] { sessions[0].fork(); });
      expect_error(ErrorCode::kInvalidArgument, [&] { sessions[0].append(one); });
      finish_step(engine);
    }
    engine.decode(again, two);
    for (const Session& session : sessions) seen.look(session);
    return seen;
  });
}

// Rank 0 starts the second step before the next rank has begun with the first.
TEST(StepsInTurn, DoNotWaitForTheNextRank) {
  const auto model = tiny_model({.n_layer = 2});
  std::promise<void> promise;
  std::future<void> have_started = promise.get_future();
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, rank_options(link, {1}));
    std::vector<Session> sessions = read_sessions(*engine, {full_options(), full_options()});
    if (link->rank() > 0 && have_started.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      throw Error(ErrorCode::kInternal, "rank 0 waits");
    }
    Turns turns(*engine);
    for (Session& session : sessions) turns.start(session, 5);
    if (link->rank() == 0) promise.set_value();
    for (int i = 0; i < 2; ++i) turns.finish();
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(StepsInTurn, EndTogether) {
  const auto model = tiny_model({.n_layer = 3});
  for (int failing = 0; failing < 3; ++failing) {
    const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
      EngineOptions options = led_options(link, {1, 2});
      if (link->rank() == failing) options.kv_bytes_limit = 200 << 10;
      const auto engine = Engine::create(model, options);
      if (link->rank() > 0) return engine->follow();
      std::vector<Session> sessions = read_sessions(*engine, {full_options(), full_options()});
      Turns turns(*engine);
      for (int i = 0; i < 2000; ++i) {
        for (Session& session : sessions) turns.start(session, 5);
        for (int step = 0; step < 2; ++step) turns.finish();
      }
    });
    expect_failure_of(failing, errors);
  }
}

}  // namespace
}  // namespace winnow::test
