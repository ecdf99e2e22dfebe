// The state of recurrent layers is that of the prompt whatever a method cuts, includes a turn only once it is fed, and
// is shared by forks until one of them goes on.
#include "engine/recurrent_state.h"

#include <gtest/gtest.h>

#include "engine/engine_test_support.h"
#include "model/tiny_architectures.h"

namespace winnow::test {
namespace {

class RecurrentStateTest : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<Engine> recurrent_engine() const {
    return Engine::create(tiny_model(tiny_options(GetParam())), {.n_threads = 2, .n_batch = 16});
  }
};

std::vector<Token> some_tokens(int n, std::uint32_t seed) { return random_tokens(n, 307, seed); }

std::vector<std::vector<float>> state_numbers(const Session& session) {
  std::vector<std::vector<float>> all;
  const RecurrentState& state = session.impl().recurrent;
  for (int l = 0; l < session.impl().cache.shape().n_layer(); ++l) {
    if (state.is_recurrent(l)) all.emplace_back(state.layer(l).begin(), state.layer(l).end());
  }
  return all;
}

TEST_P(RecurrentStateTest, IsThatOfThePromptWhateverIsCut) {
  const auto engine = recurrent_engine();
  const std::vector<Token> prompt = some_tokens(70, 1);
  Session whole = engine->open(full_options());
  whole.prefill(prompt);
  const auto expected = state_numbers(whole);
  ASSERT_GE(expected.size(), 3U);
  for (const std::vector<float>& layer : expected)
    EXPECT_GT(max_difference(layer, std::vector<float>(layer.size())), 0);
  // kvzip sends rows through the layers after the prompt that are no part of it.
  for (const char* method : {"snapkv:window=8", "h2o", "kvzip", "kvzip+"}) {
    Session session = engine->open(evicting_options(method, "20"));
    session.prefill(prompt);
    EXPECT_EQ(state_numbers(session), expected) << method;
  }
  Session together[] = {engine->open(evicting_options("tova", "20")), engine->open(full_options())};
  Session* const both[] = {&together[0], &together[1]};
  engine->prefill(both, prompt);
  EXPECT_EQ(state_numbers(together[0]), expected);
  EXPECT_EQ(state_numbers(together[1]), expected);
}

TEST_P(RecurrentStateTest, TurnsOfAnySizeGiveTheLogitsOfOnePrompt) {
  const auto engine = recurrent_engine();
  const std::vector<Token> tokens = some_tokens(90, 2);
  Session whole = engine->open(full_options());
  std::vector<std::vector<float>> expected, logits;
  const auto collect = [](std::vector<std::vector<float>>& rows) {
    return PrefillOptions{
        .on_logits = [&rows](std::int32_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); }};
  };
  whole.prefill(tokens, collect(expected));
  Session turns = engine->open(full_options());
  std::size_t at = 0;
  for (const std::size_t n : {17U, 1U, 40U, 2U, 30U}) {
    turns.append(std::span(tokens).subspan(at, n), collect(logits));
    at += n;
  }
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_LT(max_difference(logits[i], expected[i]), 1e-3) << i;
}

TEST_P(RecurrentStateTest, ATurnThatIsStoppedLeavesIt) {
  const auto engine = recurrent_engine();
  Session session = engine->open(full_options());
  session.prefill(some_tokens(50, 3));
  session.decode(7);
  Session fork = session.fork();
  const auto before = state_numbers(session);
  PrefillOptions stopping;
  stopping.on_progress = [](std::int64_t done, std::int64_t) { return done < 60; };  // stops in a later layer
  expect_error(ErrorCode::kCancelled, [&] { session.append(some_tokens(30, 4), stopping); });
  EXPECT_EQ(state_numbers(session), before);
  const std::vector<Token> later = some_tokens(12, 5);
  EXPECT_EQ(decode_all(session, later), decode_all(fork, later));
}

TEST_P(RecurrentStateTest, ForksShareItUntilOneGoesOn) {
  const auto engine = recurrent_engine();
  Session session = engine->open(full_options());
  session.prefill(some_tokens(50, 3));
  Session fork = session.fork();
  EXPECT_EQ(fork.impl().recurrent.layer(0).data(), session.impl().recurrent.layer(0).data());
  const auto before = state_numbers(fork);
  session.decode(9);
  session.decode(9);
  EXPECT_EQ(state_numbers(fork), before);
  EXPECT_NE(state_numbers(session), before);
  fork.decode(9);
  fork.decode(9);
  EXPECT_EQ(state_numbers(fork), state_numbers(session));
  session.clear();
  EXPECT_TRUE(session.impl().recurrent.layer(0).empty());
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecurrentStateTest, testing::Values("lfm2", "qwen35", "granitehybrid"),
                         [](const auto& test) { return test.param; });

TEST(RecurrentBytes, AreCounted) {
  const auto engine = Engine::create(tiny_model(tiny_options("lfm2")), {.n_threads = 2});
  Session session = engine->open(full_options());
  EXPECT_EQ(session.statistics().recurrent_bytes, 0U);
  session.prefill(some_tokens(50, 3));
  constexpr std::size_t kState = 3 * 3 * 288 * sizeof(float);  // layers, taps before the last, width
  EXPECT_EQ(engine->estimate(full_options(), 50, 10).recurrent_bytes, 2 * kState);
  for (int i = 0; i < 3; ++i) session.decode(4);
  EXPECT_EQ(session.statistics().recurrent_bytes, 2 * kState);  // the present state, and room for the next
  EXPECT_EQ(Model::load(TinyModel(tiny_options("lfm2")).path())->info().state_bytes(), kState);
}

TEST(RecurrentBytes, CountTowardsTheLimit) {
  const TinyModelOptions options = tiny_options("granitehybrid");
  const auto model = tiny_model(options);
  const std::vector<Token> prompt = some_tokens(40, 3), later = some_tokens(12, 5);
  std::vector<std::vector<float>> expected;
  std::size_t one_session = 0, pages = 0;
  {
    const auto engine = Engine::create(model, {.n_threads = 2});
    Session session = engine->open(full_options());
    session.prefill(prompt);
    expected = decode_all(session, later);
    one_session = engine->memory().kv_bytes_peak;
    pages = session.statistics().bytes_in_pages;
    EXPECT_GE(one_session, 2 * model->info().state_bytes());
    EXPECT_LE(one_session, engine->estimate(full_options(), 40, 12).kv_bytes_peak);
  }
  // The limit has room for one session, its fork's pages and the state that they share, but not for a fourth state.
  const auto engine =
      Engine::create(model, {.n_threads = 2, .kv_bytes_limit = one_session + pages + model->info().state_bytes()});
  Session session = engine->open(full_options());
  session.prefill(prompt);
  Session fork = session.fork();
  std::vector<std::vector<float>> logits = decode_all(session, std::span(later).first(6));
  expect_error(ErrorCode::kOutOfMemory, [&] { fork.decode(later[0]); });
  Session second = engine->open(full_options());
  expect_error(ErrorCode::kOutOfMemory, [&] { second.prefill(prompt); });
  for (const std::vector<float>& row : decode_all(session, std::span(later).subspan(6))) logits.push_back(row);
  EXPECT_EQ(logits, expected);
  session.clear();
  fork.clear();
  EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U);
  second.prefill(prompt);
  EXPECT_EQ(decode_all(second, later), expected);
}

}  // namespace
}  // namespace winnow::test
