// The loop that chooses, shows and feeds tokens: why it ends, what it shows, and where it leaves the session.
#include "winnow/generate.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "engine/engine_test_support.h"

namespace winnow::test {
namespace {

constexpr int kContext = 60;

class GenerateTest : public ::testing::Test {
 protected:
  // Returns a session after 40 tokens of a context of 60.
  Session start(const TinyModelOptions& options = {.n_ctx = kContext}) {
    engine_ = Engine::create(tiny_model(options), {.n_threads = 2});
    Session session = engine_->open(full_options());
    session.prefill(random_tokens(40, 300, 1));
    return session;
  }
  Sampler greedy() const { return {engine_->model(), {.temperature = 0}}; }

  std::shared_ptr<Engine> engine_;
};

TEST_F(GenerateTest, FeedsWhatItChooses) {
  Session session = start();
  Session by_hand = session.fork();
  Sampler sampler = greedy();
  std::vector<GenerationStep> steps;
  std::string shown;
  const GenerationResult result = generate(session, sampler, {.max_tokens = 7}, [&](const GenerationStep& step) {
    steps.push_back(step);
    shown += step.text;
    return true;
  });
  EXPECT_EQ(result.reason, FinishReason::kLength);
  ASSERT_EQ(result.tokens.size(), 7U);
  ASSERT_EQ(steps.size(), 8U);  // the tokens and the end
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(steps[i].token, result.tokens[i]);
    EXPECT_FALSE(steps[i].is_last);
    EXPECT_EQ(result.tokens[i], argmax(by_hand.logits()));
    by_hand.decode(result.tokens[i]);
  }
  EXPECT_TRUE(steps[7].is_last);
  EXPECT_EQ(steps[7].token, -1);
  EXPECT_EQ(steps[7].reason, FinishReason::kLength);
  EXPECT_EQ(result.text, shown);
  EXPECT_EQ(session.n_tokens(), 47);
  EXPECT_EQ(logits_of(session), logits_of(by_hand));
}

TEST_F(GenerateTest, TheLastTokenIsFedWhereItIsWanted) {
  Session session = start();
  Session other = session.fork();
  Sampler first = greedy(), second = greedy();
  const GenerationResult fed = generate(session, first, {.max_tokens = 3});
  const GenerationResult not_fed = generate(other, second, {.max_tokens = 3, .feed_last = false});
  EXPECT_EQ(fed.tokens, not_fed.tokens);
  EXPECT_EQ(session.n_tokens(), 43);
  EXPECT_EQ(other.n_tokens(), 42);
  other.decode(fed.tokens.back());
  EXPECT_EQ(logits_of(session), logits_of(other));
}

TEST_F(GenerateTest, EndsWhereTheContextIsFull) {
  Session session = start();
  Sampler sampler = greedy();
  const GenerationResult result = generate(session, sampler);
  EXPECT_EQ(result.reason, FinishReason::kContextFull);
  EXPECT_EQ(session.n_tokens(), kContext);
  EXPECT_EQ(result.tokens.size(), 21U);  // the last token needs no room
  // A limit of as many tokens as there is room for is reached first.
  Session exact = start();
  Sampler again = greedy();
  EXPECT_EQ(generate(exact, again, {.max_tokens = 20}).reason, FinishReason::kLength);
}

TEST_F(GenerateTest, NothingIsWantedAndNothingIsFed) {
  Session session = start();
  Sampler sampler = greedy();
  const GenerationResult result = generate(session, sampler, {.max_tokens = 0});
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(session.n_tokens(), 40);
}

TEST_F(GenerateTest, ACallbackStopsItAndHearsNoMore) {
  Session session = start();
  Sampler sampler = greedy();
  int n_calls = 0;
  const GenerationResult result =
      generate(session, sampler, {.max_tokens = 9}, [&](const GenerationStep&) { return ++n_calls < 4; });
  EXPECT_EQ(result.reason, FinishReason::kStopped);
  EXPECT_EQ(n_calls, 4);
  EXPECT_EQ(result.tokens.size(), 4U);
  EXPECT_EQ(session.n_tokens(), 44);
}

TEST_F(GenerateTest, IsCancelledBetweenTokens) {
  Session session = start();
  Sampler sampler = greedy();
  int n_asked = 0;
  const GenerationResult result = generate(session, sampler, {.is_cancelled = [&] { return ++n_asked > 2; }});
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 2U);
  EXPECT_EQ(session.n_tokens(), 42);
}

TEST_F(GenerateTest, ChoosesFromWhatTheLogitsAreMade) {
  Session session = start();
  Session by_hand = session.fork();
  Sampler sampler = greedy();
  std::vector<std::vector<float>> seen;
  const GenerationOptions options{.max_tokens = 4, .before_choice = [&](std::span<float> logits) {
                                    seen.emplace_back(logits.begin(), logits.end());
                                    logits[40 + seen.size()] = 1e6F;
                                    return true;
                                  }};
  const GenerationResult result = generate(session, sampler, options);
  EXPECT_EQ(result.tokens, (std::vector<Token>{41, 42, 43, 44}));
  ASSERT_EQ(seen.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(seen[i], logits_of(by_hand));  // the model's own logits, whatever the earlier ones were changed to
    by_hand.decode(result.tokens[i]);
  }
  EXPECT_EQ(logits_of(session), logits_of(by_hand));
}

TEST_F(GenerateTest, EndsBeforeAChoiceThatIsNotWanted) {
  Session session = start();
  Sampler sampler = greedy();
  int n_asked = 0;
  const GenerationOptions options{.before_choice = [&](std::span<float>) { return ++n_asked <= 2; }};
  const GenerationResult result = generate(session, sampler, options);
  EXPECT_EQ(result.reason, FinishReason::kStopped);
  EXPECT_EQ(result.tokens.size(), 2U);
  EXPECT_EQ(session.n_tokens(), 42);
}

TEST_F(GenerateTest, AStopTextEndsItAndIsNotShown) {
  Session session = start();
  Session other = session.fork();
  Sampler first = greedy(), second = greedy();
  const GenerationResult whole = generate(session, first, {.max_tokens = 12});
  ASSERT_GT(whole.text.size(), 6U);
  // The stop text is compared with the bytes before they are repaired as UTF-8. It begins at the fourth byte.
  std::string bytes;
  for (const Token token : whole.tokens) bytes += engine_->model()->token_text(token);
  const std::string stop = bytes.substr(3, 2);
  const std::string expected = valid_utf8(bytes.substr(0, bytes.find(stop)));
  std::string shown;
  const GenerationResult result =
      generate(other, second, {.max_tokens = 12, .stops = {stop}}, [&](const GenerationStep& step) {
        shown += step.text;
        return true;
      });
  EXPECT_EQ(result.reason, FinishReason::kStopText);
  EXPECT_EQ(result.text, expected);
  EXPECT_EQ(shown, expected);
  EXPECT_LT(result.tokens.size(), 12U);
}

TEST_F(GenerateTest, AskedStepByStepItGivesTheSame) {
  Session session = start();
  Session other = session.fork();
  Sampler first = greedy(), second = greedy();
  const GenerationResult whole = generate(session, first, {.max_tokens = 5});
  Generator generator(other, second, {.max_tokens = 5});
  std::vector<Token> tokens;
  std::string text;
  for (bool is_over = false; !is_over;) {
    const GenerationStep step = generator.next();
    is_over = step.is_last;
    text += step.text;
    if (is_over) {
      EXPECT_EQ(step.reason, FinishReason::kLength);
      continue;
    }
    tokens.push_back(step.token);
    EXPECT_EQ(argmax(other.logits()), step.token);  // is not fed yet
    EXPECT_EQ(other.n_tokens(), 40 + static_cast<int>(tokens.size()) - 1);
  }
  EXPECT_EQ(tokens, whole.tokens);
  EXPECT_EQ(text, whole.text);
  EXPECT_EQ(logits_of(other), logits_of(session));
}

TEST_F(GenerateTest, StepsEndWhereNobodyWantsMore) {
  Session session = start();
  Sampler sampler = greedy();
  Generator generator(session, sampler);
  generator.next();
  generator.next();
  generator.stop();
  const GenerationStep last = generator.next();
  EXPECT_TRUE(last.is_last);
  EXPECT_EQ(last.reason, FinishReason::kStopped);
  EXPECT_EQ(session.n_tokens(), 42);
}

// The model's likeliest token is a special one.
TEST_F(GenerateTest, ShownTokensArePartOfTheText) {
  Session probe = start();
  const Token special = argmax(probe.logits());
  Session session = start({.n_ctx = kContext, .edit_metadata = [special](gguf_context* file) {
                             const char* const key = "tokenizer.ggml.token_type";
                             const std::int64_t id = gguf_find_key(file, key);
                             const auto* data = static_cast<const std::int32_t*>(gguf_get_arr_data(file, id));
                             std::vector<std::int32_t> types(data, data + gguf_get_arr_n(file, id));
                             types[static_cast<std::size_t>(special)] = 3;  // control
                             gguf_set_arr_data(file, key, GGUF_TYPE_INT32, types.data(), types.size());
                           }});
  const std::string text = engine_->model()->token_text(special, true);
  ASSERT_FALSE(text.empty());
  ASSERT_EQ(engine_->model()->token_text(special), "");
  const auto answer = [&](std::vector<Token> shown) {
    Session fork = session.fork();
    Sampler sampler = greedy();
    return generate(fork, sampler, {.max_tokens = 1, .shown_tokens = std::move(shown)}).text;
  };
  EXPECT_EQ(answer({}), "");
  EXPECT_EQ(answer({special + 1, special}), valid_utf8(text));
}

// The model ends at once, because its likeliest token is the end token.
TEST_F(GenerateTest, EndTokensEndItUnlessTheyAreIgnored) {
  Session probe = start();
  const Token first = argmax(probe.logits());
  const TinyModelOptions ends_with_it{.n_ctx = kContext, .edit_metadata = [first](gguf_context* file) {
                                        gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id",
                                                         static_cast<std::uint32_t>(first));
                                      }};
  Session session = start(ends_with_it);
  Session other = session.fork();
  Sampler sampler = greedy(), ignoring = greedy();
  const GenerationResult ended = generate(session, sampler, {.max_tokens = 5});
  EXPECT_EQ(ended.reason, FinishReason::kEndOfText);
  EXPECT_TRUE(ended.tokens.empty());
  EXPECT_EQ(session.n_tokens(), 40);
  const GenerationResult longer = generate(other, ignoring, {.max_tokens = 5, .ignore_end = true});
  EXPECT_EQ(longer.reason, FinishReason::kLength);
  EXPECT_EQ(std::count(longer.tokens.begin(), longer.tokens.end(), first), 0);
}

}  // namespace
}  // namespace winnow::test
