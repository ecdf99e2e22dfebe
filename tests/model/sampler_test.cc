// Choosing tokens: greedy, seeded draws, penalties, ranges, grammars.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "expect_error.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow::test {
namespace {

constexpr int kVocab = 300;

class SamplerTest : public testing::Test {
 protected:
  std::vector<float> random_logits() {
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = normal(random_);
    return logits;
  }

  void expect_refused(const SamplingOptions& options) {
    try {
      const Sampler sampler(model_, options);
      ADD_FAILURE() << "no error; grammar '" << options.grammar.substr(0, 60) << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  }

  std::mt19937 random_{1};
  const TinyModel file_;
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
};

TEST_F(SamplerTest, ZeroTemperatureTakesTheLikeliest) {
  Sampler greedy(model_, {.temperature = 0});
  Sampler cold(model_, {.temperature = 1e-6F});
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> logits = random_logits();
    EXPECT_EQ(greedy.sample(logits), argmax(logits));
    EXPECT_EQ(cold.sample(logits), argmax(logits));
  }
}

TEST_F(SamplerTest, SeedsReproduce) {
  Sampler a(model_, {.seed = 42});
  Sampler b(model_, {.seed = 42});
  Sampler c(model_, {.seed = 43});
  EXPECT_EQ(a.seed(), 42U);
  const std::vector<float> logits = random_logits();
  int n_different = 0;
  for (int i = 0; i < 50; ++i) {
    const Token token = a.sample(logits);
    EXPECT_EQ(b.sample(logits), token);
    n_different += c.sample(logits) != token;
  }
  EXPECT_GT(n_different, 0);
  Sampler random(model_, {});
  EXPECT_NE(random.seed(), 0xFFFFFFFFU);
  Sampler again(model_, {.seed = random.seed()});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(random.sample(logits), again.sample(logits));
}

TEST_F(SamplerTest, DrawsFollowTheProbabilities) {
  std::vector<float> logits(kVocab, -std::numeric_limits<float>::infinity());
  for (int i = 0; i < 3; ++i) logits[static_cast<std::size_t>(5 + i)] = std::log(static_cast<float>(1 + i));
  Sampler sampler(model_, {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 1});
  std::vector<int> counts(3);
  for (int i = 0; i < 6000; ++i) {
    const Token token = sampler.sample(logits);
    ASSERT_TRUE(token >= 5 && token <= 7) << token;
    ++counts[static_cast<std::size_t>(token - 5)];
  }
  // Five standard deviations.
  EXPECT_NEAR(counts[0], 1000, 145);
  EXPECT_NEAR(counts[1], 2000, 183);
  EXPECT_NEAR(counts[2], 3000, 194);
}

TEST_F(SamplerTest, TopKAndPenalties) {
  const std::vector<float> logits = random_logits();
  Sampler one(model_, {.temperature = 5, .top_k = 1, .seed = 3});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(one.sample(logits), argmax(logits));
  Sampler penalised(model_, {.temperature = 0, .presence_penalty = 1000});
  penalised.accept(argmax(logits));
  const Token second = penalised.sample(logits);
  EXPECT_NE(second, argmax(logits));
  EXPECT_NE(penalised.sample(logits), second);
  Sampler forgetful(model_, {.temperature = 0, .repeat_last_n = 0, .presence_penalty = 1000});
  forgetful.accept(argmax(logits));
  EXPECT_EQ(forgetful.sample(logits), argmax(logits));
}

TEST_F(SamplerTest, OptionsOutOfRange) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_refused({.temperature = kNaN});
  expect_refused({.temperature = kInfinity});
  expect_refused({.temperature = -1});
  expect_refused({.temperature = 101});
  expect_refused({.top_k = -2});
  expect_refused({.top_p = 1.5F});
  expect_refused({.top_p = -0.1F});
  expect_refused({.min_p = -1});
  expect_refused({.min_p = kNaN});
  expect_refused({.repeat_last_n = -1});
  expect_refused({.repeat_penalty = 0});
  expect_refused({.frequency_penalty = kNaN});
  expect_refused({.presence_penalty = kInfinity});
}

TEST_F(SamplerTest, LogitsThatAreNoNumbers) {
  Sampler sampler(model_, {});
  const auto code_of = [&](const std::vector<float>& logits) {
    try {
      sampler.sample(logits);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::kIo;
  };
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = random_logits();
    logits[3] = bad;
    EXPECT_EQ(code_of(logits), ErrorCode::kInternal);
  }
  EXPECT_EQ(code_of(std::vector<float>(kVocab, -std::numeric_limits<float>::infinity())), ErrorCode::kInternal);
  EXPECT_EQ(code_of(std::vector<float>(kVocab - 1)), ErrorCode::kInvalidArgument);
  test::expect_error(ErrorCode::kInvalidArgument, "no token -1", [&] { sampler.accept(-1); });
  test::expect_error(ErrorCode::kInvalidArgument, "no token 300", [&] { sampler.accept(kVocab); });
}

TEST_F(SamplerTest, GrammarErrors) {
  for (const std::string grammar :
       {"root", "root ::= \"a", "foo ::= \"a\"", "root ::= x", "root ::= root \"a\" | \"b\"",
        "root ::= y root \"c\" | \"b\"\ny ::= z z\nz ::= \"a\" |", "root ::= \"a\"{3,2}", "root ::= \"a\"{99999}",
        "root ::= *", "root ::= \"\\q\"", "root ::= \"a\" )", "root ::= <nope>", "root ::= \"\\x1\"", "root ::= \xff",
        "root ::= [a", "root ::= (\"a\"{1,100}){1,100}"}) {
    expect_refused({.grammar = grammar});
  }
  expect_refused({.grammar = std::string("root ::= \"a\"\0", 13)});
  expect_refused({.grammar = "root ::= " + std::string(100000, '(')});
}

TEST_F(SamplerTest, TextFollowsTheGrammar) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (int round = 0; round < 5; ++round) {
      Sampler sampler(model_, {.temperature = temperature,
                               .top_k = 0,
                               .top_p = 1,
                               .min_p = 0,
                               .seed = static_cast<std::uint32_t>(round),
                               .grammar = "root ::= [a-z]{3,5} (\"!\" | \"?\")"});
      std::string text;
      bool has_ended = false;
      for (int i = 0; i < 10 && !has_ended; ++i) {
        const Token token = sampler.sample(random_logits());
        has_ended = model_->is_end_of_generation(token);
        if (!has_ended) text += model_->token_text(token);
      }
      EXPECT_TRUE(has_ended) << text;
      ASSERT_TRUE(text.size() >= 4 && text.size() <= 6) << text;
      EXPECT_TRUE(std::all_of(text.begin(), text.end() - 1, [](char c) { return c >= 'a' && c <= 'z'; })) << text;
      EXPECT_TRUE(text.back() == '!' || text.back() == '?') << text;
    }
  }
}

TEST_F(SamplerTest, GreedyWithAGrammarTakesTheLikeliestAllowed) {
  SamplingOptions options{.temperature = 0, .repeat_penalty = 1.3F, .grammar = "root ::= [a-z ]{100,200}"};
  Sampler greedy(model_, options);
  options.temperature = 1e-5F;
  options.top_k = 1;
  Sampler drawn(model_, options);
  for (int i = 0; i < 40; ++i) {
    const std::vector<float> logits = random_logits();
    const Token token = greedy.sample(logits);
    EXPECT_EQ(token, drawn.sample(logits));
    EXPECT_FALSE(model_->is_end_of_generation(token));
  }
}

TEST_F(SamplerTest, GrammarNeedsATokenizer) {
  const TinyModel file({.has_tokenizer = false});
  const auto model = Model::load(file.path());
  std::vector<float> logits(kVocab, 0);
  logits[7] = 50;
  EXPECT_EQ(Sampler(model, {}).sample(logits), 7);
  try {
    const Sampler sampler(model, {.grammar = "root ::= \"a\""});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

}  // namespace
}  // namespace winnow::test
