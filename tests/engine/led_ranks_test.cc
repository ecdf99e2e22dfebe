// A program that only rank 0 runs: the other ranks repeat its calls as they come, and the results are those of one
// engine.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/pipeline_test_support.h"

namespace winnow::test {
namespace {

TEST(LedRanks, RepeatAConversation) {
  const auto model = tiny_model({.n_layer = 4});
  for (const std::vector<int>& first_layers : {std::vector<int>{2}, {1, 3}}) {
    expect_led(model, first_layers, [](Engine& engine) { return conversation(engine, full_options(), 120); });
    for (const char* method : {"snapkv", "lava", "kvzip+", "expected-attention"}) {
      SCOPED_TRACE(method);
      const SessionOptions options = evicting_options(method, "30%");
      expect_led(model, first_layers, [&](Engine& engine) { return conversation(engine, options, 200); });
    }
  }
}

TEST(LedRanks, RepeatCodesToTheByte) {
  const auto model = tiny_model({.n_layer = 4, .n_head = 4, .n_kv_head = 2, .head_dim = 32, .seed = 3});
  SessionOptions options;
  options.eviction = EvictionOptions::parse("auto:repeat=always");
  options.budget = Budget{.unit = Budget::Unit::kByteFraction, .amount = 1.0 / 7};  // has no exact decimal form
  expect_led(model, {1}, [&](Engine& engine) { return conversation(engine, options, 500); });
}

// The other calls of a session are repeated, too.
TEST(LedRanks, RepeatEveryCall) {
  const auto model = tiny_model({.n_layer = 3});
  const TemporaryDirectory directory;
  const std::string path = directory.file("a name\nof two lines");
  expect_led(model, {1, 2}, [&](Engine& engine) {
    Seen seen;
    const auto add_row = [&](std::int32_t, std::span<const float> row) {
      seen.logits.emplace_back(row.begin(), row.end());
    };
    Session session = engine.open(full_options());
    session.prefill(random_tokens(60, 300, 6), {.on_logits = add_row});
    session.truncate(40);
    session.append(random_tokens(20, 300, 7));
    seen.look(session);
    session.save(path);
    session.clear();
    session.prefill(random_tokens(20, 300, 8), {.on_hidden = add_row});
    Session loaded = engine.load_session(path);
    seen.look(loaded);
    session = std::move(loaded);  // destroys the session that was there
    {
      std::vector<Session> sessions;
      for (const char* method : {"snapkv", "cake"}) sessions.push_back(engine.open(evicting_options(method, "30%")));
      std::vector<Session*> both = {&sessions[0], &sessions[1]};
      engine.prefill(both, random_tokens(150, 300, 4));
      seen.look(sessions[1]);
      sessions.erase(sessions.begin());
      seen.look(sessions[0]);
    }
    // Slices of one prompt come between steps of another sequence, and another prompt is abandoned.
    Session reading = engine.open(full_options()), given_up = engine.open(full_options());
    Session* of_reading = &reading;
    Session* of_given_up = &given_up;
    Prefill prefill = engine.start_prefill(std::span(&of_reading, 1), random_tokens(100, 300, 5));
    { const Prefill other = engine.start_prefill(std::span(&of_given_up, 1), random_tokens(90, 300, 5)); }
    session.decode(4);
    while (prefill.step()) session.decode(5);
    session.decode(6);
    seen.look(reading);
    given_up.prefill(random_tokens(30, 300, 5));
    seen.look(given_up);
    return seen;
  });
}

// Rank 0 does other work between the slices of a prompt, and may abandon it; all ranks are then at the same place.
class LedSlices : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, LedSlices, testing::Values("full", "snapkv", "kvzip+", "h2o"), method_test_name);

TEST_P(LedSlices, AreThoseOfOnePrompt) {
  constexpr int kLayers = 5, kSweeps = 3;
  const auto model = tiny_model({.n_layer = kLayers});
  const auto prompt = random_tokens(kSweeps * 4 * kBatch, 300, 5);
  const SessionOptions options = GetParam() == "full" ? full_options() : evicting_options(GetParam(), "30%");
  const bool is_sliced = GetParam() != "h2o";  // it keeps queries of one layer at a time
  int n_slices = 0;
  expect_led(model, {2}, [&](Engine& engine) {
    Seen seen;
    Session reading = engine.open(options), answering = engine.open(full_options());
    answering.prefill(random_tokens(30, 300, 6));
    Session* of_reading = &reading;
    int n_answered = 0;
    const auto answer = [&] {
      if (++n_answered > 4) return;
      answering.decode(5);
      seen.look(answering);
    };
    Prefill prefill = engine.start_prefill(std::span(&of_reading, 1), prompt);
    for (n_slices = 1; prefill.step(); ++n_slices) answer();
    while (n_answered < 4) answer();
    seen.look(reading);
    if (!is_sliced) return seen;

    Prefill turn = engine.start_append(reading, random_tokens(5 * kBatch, 300, 8));
    while (turn.step()) answering.decode(6);
    seen.look(reading);
    reading.clear();
    for (const int n_steps : {1, 9}) {
      int n = 0;
      expect_error(ErrorCode::kCancelled, [&] {
        reading.prefill(prompt, {.on_progress = [&](std::int64_t, std::int64_t) { return ++n < n_steps; }});
      });
      reading.append(random_tokens(20, 300, 7));
      reading.clear();
    }
    {
      Prefill given_up = engine.start_prefill(std::span(&of_reading, 1), prompt);
      given_up.step();
    }
    reading.prefill(prompt);
    seen.look(reading);
    return seen;
  });
  const int n_followed = GetParam() == "kvzip+" ? kLayers : 0;  // layer by layer over all ranks
  EXPECT_EQ(n_slices, is_sliced ? kSweeps + n_followed : 1);
}

// A call that rank 0 refuses changes nothing on any rank, and only rank 0 throws.
TEST(LedRanks, GoOnAfterAnError) {
  const auto model = tiny_model({.n_layer = 3});
  const TemporaryDirectory directory;
  expect_led(model, {1}, [&](Engine& engine) {
    SessionOptions options = full_options();
    options.n_ctx = 100;
    Session session = engine.open(options);
    session.prefill(random_tokens(50, 300, 6));
    expect_error(ErrorCode::kContextFull, [&] { session.append(random_tokens(60, 300, 6)); });
    expect_error(ErrorCode::kInvalidArgument, [&] { session.decode(-1); });
    expect_error(ErrorCode::kInvalidArgument, [&] { session.truncate(70); });
    expect_error(ErrorCode::kInvalidArgument, [&] { engine.open(evicting_options("snapkv", "1")).prefill({}); });
    SessionOptions strict = evicting_options("kvzip", "20%");
    strict.budget = Budget{.unit = Budget::Unit::kLoss, .amount = 1e-4};
    expect_error(ErrorCode::kInvalidArgument, [&] { engine.open(strict).prefill(random_tokens(300, 300, 4)); });
    expect_error(ErrorCode::kIo, [&] { session.save(directory.file("no/folder")); });
    expect_error(ErrorCode::kNotFound, [&] { engine.load_session(directory.file("nowhere")); });
    session.decode(3);
    Seen seen;
    seen.look(session);
    return seen;
  });
}

// Rank 0's own limit refuses a prompt before the other ranks learn of it.
TEST(LedRanks, GoOnWithoutMemoryOnTheFirst) {
  const auto model = tiny_model({.n_layer = 3});
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    EngineOptions options = led_options(link, {1});
    options.kv_bytes_limit = 300 << 10;
    const auto engine = Engine::create(model, options);
    if (link->rank() > 0) return engine->follow();
    Session large = engine->open(full_options()), small = engine->open(full_options());
    try {
      large.prefill(random_tokens(1500, 300, 6));
      ADD_FAILURE() << "no error";
    } catch (const PipelineError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory) << error.what();
    }
    small.prefill(random_tokens(50, 300, 6));
    small.decode(3);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

// A rank that fails ends rank 0's calls and the other ranks' follow().
TEST(LedRanks, EndTogether) {
  const auto model = tiny_model({.n_layer = 3});
  for (int failing = 1; failing < 3; ++failing) {
    const std::vector<std::string> errors = on_ranks(3, [&](const std::shared_ptr<PipelineLink>& link) {
      EngineOptions options = led_options(link, {1, 2});
      if (link->rank() == failing) options.kv_bytes_limit = 100 << 10;
      const auto engine = Engine::create(model, options);
      if (link->rank() > 0) return engine->follow();
      Session session = engine->open(full_options());
      for (int turn = 0; turn < 100; ++turn) session.append(random_tokens(20, 300, 4));
    });
    expect_failure_of(failing, errors);
  }
}

TEST(LedRanks, SayWhoFollows) {
  const auto model = tiny_model({.n_layer = 2});
  expect_error(ErrorCode::kInvalidArgument, [&] { Engine::create(model, {.n_threads = 1})->follow(); });
  const std::vector<std::string> errors = on_ranks(2, [&](const std::shared_ptr<PipelineLink>& link) {
    EngineOptions options = rank_options(link, {1});
    options.is_led = link->rank() == 0;
    Engine::create(model, options);
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("different flags"), std::string::npos) << error;
}

}  // namespace
}  // namespace winnow::test
