// Choosing tokens: greedy, seeded draws, penalties, ranges, grammars.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "expect_error.h"
#include "model/tiny_model.h"
#include "normal_numbers.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow::test {
namespace {

constexpr int kVocab = 300;

class SamplerTest : public testing::Test {
 protected:
  std::vector<float> random_logits() { return normal_numbers(kVocab, random_, 0, 3); }

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

TEST_F(SamplerTest, InfillLeavesWhatATokenBeginsWithAndTheEnd) {
  constexpr Token kT = 261, kA = 262, kTh = 266, kThe = 267, kEnd = 2, kBytes = 3;  // of the tiny vocabulary
  ASSERT_EQ(model_->token_text(kThe), "the");
  ASSERT_EQ(model_->token_text(kT), "t");
  std::vector<float> logits(kVocab, -40.0F);
  logits[kT] = std::log(0.25F);
  logits[kTh] = std::log(0.2F);
  logits[kThe] = std::log(0.2F);
  logits[kA] = std::log(0.35F);
  const auto draw = [&](std::uint32_t seed) {
    return Sampler(model_, {.samplers = {"top_k", "infill"}, .seed = seed}).sample(logits);
  };
  std::set<Token> drawn;
  for (std::uint32_t seed = 0; seed < 200; ++seed) drawn.insert(draw(seed));
  EXPECT_EQ(drawn, (std::set<Token>{kT, kA}));  // "th" and "the" begin with "t"

  // The end is chosen if it is likely in proportion to the number of the other candidates.
  logits[kEnd] = std::log(0.05F);
  EXPECT_EQ(draw(1), kEnd);
  // The end is also chosen if none of the others is likely enough.
  for (char c = 'a'; c <= 'z'; ++c) logits[static_cast<std::size_t>(kBytes + c)] = 5;
  logits[kEnd] = -40;
  EXPECT_EQ(draw(1), kEnd);
  // It is not chosen if a grammar does not allow it.
  const Token held = Sampler(model_, {.samplers = {"infill"}, .seed = 1, .grammar = "root ::= [a-z]+"}).sample(logits);
  EXPECT_GE(held, kBytes + 'a');
  EXPECT_LE(held, kBytes + 'z');
}

TEST_F(SamplerTest, InfillOfAWholeVocabularyTakesNoTime) {
  const TinyModel file({.n_embd = 32, .n_vocab = 60000});
  const auto model = Model::load(file.path());
  Sampler sampler(model, {.top_k = 0, .samplers = {"infill"}, .seed = 1});
  const std::vector<float> logits(60000, 0.0F);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) sampler.sample(logits);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));  // all pairs would take minutes
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
  // The tolerances are five standard deviations.
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

// Returns logits whose first n tokens have the given probabilities; all others are impossible.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits(kVocab, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < probabilities.size(); ++i) logits[i] = static_cast<float>(std::log(probabilities[i]));
  return logits;
}

// Returns the tokens of many draws with the given samplers only.
std::set<Token> drawn(const std::shared_ptr<const Model>& model, SamplingOptions options, const std::string& samplers,
                      const std::vector<float>& logits, int n = 300) {
  options.samplers = SamplingOptions::parse_samplers(samplers);
  options.seed = 7;
  Sampler sampler(model, options);
  std::set<Token> tokens;
  for (int i = 0; i < n; ++i) tokens.insert(sampler.sample(logits));
  return tokens;
}

TEST_F(SamplerTest, TypicalTakesWhatSurprisesAsExpected) {
  // The entropy is 1.28 nats and the surprisals are 0.69, 1.39, 1.90 and 2.30; the second is nearest, then the first.
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.15, 0.1});
  double entropy = 0;
  std::vector<std::pair<double, Token>> distances;
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.1};
  for (const double one : p) entropy -= one * std::log(one);
  for (std::size_t i = 0; i < p.size(); ++i) {
    distances.emplace_back(std::abs(-std::log(p[i]) - entropy), static_cast<Token>(i));
  }
  std::sort(distances.begin(), distances.end());
  EXPECT_EQ(drawn(model_, {.typical_p = 0.2F}, "typ_p", logits), std::set<Token>{distances[0].second});
  EXPECT_EQ(drawn(model_, {.typical_p = 1}, "typ_p", logits).size(), 4U);
}

TEST_F(SamplerTest, TopNSigmaCutsBelowTheLikeliest) {
  std::vector<float> logits(kVocab, 0);
  logits[3] = 100;
  logits[4] = 99;
  double mean = 0, square = 0;
  for (const float logit : logits) mean += logit / kVocab;
  for (const float logit : logits) square += (logit - mean) * (logit - mean) / kVocab;
  ASSERT_GT(std::sqrt(square), 1);  // so that both are within one deviation
  EXPECT_EQ(drawn(model_, {.temperature = 100, .top_n_sigma = 1}, "top_n_sigma;temperature", logits),
            (std::set<Token>{3, 4}));
  EXPECT_GT(drawn(model_, {.temperature = 100, .top_n_sigma = -1}, "top_n_sigma;temperature", logits).size(), 2U);
}

TEST_F(SamplerTest, XtcLeavesTheLikeliestOut) {
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.15, 0.05});
  // Of the tokens with a probability of at least 0.1, only the least likely remains.
  EXPECT_EQ(drawn(model_, {.xtc_probability = 1, .xtc_threshold = 0.1F}, "xtc", logits), (std::set<Token>{2, 3}));
  EXPECT_EQ(drawn(model_, {.xtc_probability = 1, .xtc_threshold = 0.6F}, "xtc", logits).size(), 4U);
  EXPECT_EQ(drawn(model_, {.xtc_probability = 0.5F, .xtc_threshold = 0.1F}, "xtc", logits).size(), 4U);
}

TEST_F(SamplerTest, DryPunishesWhatIsRepeated) {
  std::vector<float> logits = logits_of({0.6, 0.4});
  const auto next = [&](const std::vector<Token>& before, SamplingOptions options) {
    options.temperature = 0;
    Sampler sampler(model_, options);
    for (const Token token : before) sampler.accept(token);
    return sampler.sample(logits);
  };
  // "10 11 12 0" occurred before, so after "10 11 12" the likeliest token, 0, would repeat it.
  const std::vector<Token> said = {10, 11, 12, 0, 13, 10, 11, 12};
  EXPECT_EQ(next(said, {}), 0);
  EXPECT_EQ(next(said, {.dry_multiplier = 5}), 1);
  EXPECT_EQ(next(said, {.dry_multiplier = 5, .dry_allowed_length = 8}), 0);
  EXPECT_EQ(next(said, {.dry_multiplier = 5, .dry_penalty_last_n = 4}), 0);
}

TEST_F(SamplerTest, DynamicTemperatureFollowsTheEntropy) {
  // The temperature is highest for high entropy and lowest for low entropy; the share of the likeliest token shows it.
  const auto share = [&](const SamplingOptions& options, const std::vector<float>& logits) {
    Sampler sampler(model_, options);
    int n = 0;
    for (int i = 0; i < 4000; ++i) n += sampler.sample(logits) == 0;
    return n / 4000.0;
  };
  const std::vector<float> sure = logits_of({0.9, 0.1});
  SamplingOptions plain{.temperature = 1, .seed = 3};
  plain.samplers = {"temperature"};
  SamplingOptions dynamic = plain;
  dynamic.dynatemp_range = 1;
  EXPECT_NEAR(share(plain, sure), 0.9, 0.03);
  // The entropy is 0.469 of 1 bit, so the temperature is 0 + 2 * 0.469.
  const double t = 2 * 0.469;
  const double expected = std::pow(0.9, 1 / t) / (std::pow(0.9, 1 / t) + std::pow(0.1, 1 / t));
  EXPECT_NEAR(share(dynamic, sure), expected, 0.03);
}

TEST_F(SamplerTest, MirostatHoldsTheSurprise) {
  std::vector<float> logits(kVocab);
  // The logits follow Zipf's law, which Mirostat 1 assumes.
  for (int i = 0; i < kVocab; ++i) logits[static_cast<std::size_t>(i)] = -1.1F * std::log(static_cast<float>(i + 1));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const auto surprise = [&](int version, float tau) {
    SamplingOptions options{.temperature = 1, .seed = 5};
    options.mirostat = version;
    options.mirostat_tau = tau;
    Sampler sampler(model_, options);
    double bits = 0;
    constexpr int kSettle = 300, kTokens = 1500;
    for (int i = 0; i < kSettle + kTokens; ++i) {
      const Token token = sampler.sample(logits);
      const double p = std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)])) / sum;
      if (i >= kSettle) bits -= std::log2(p) / kTokens;
    }
    return bits;
  };
  for (const int version : {1, 2}) {
    EXPECT_LT(surprise(version, 2), surprise(version, 4) - 0.5) << version;
  }
}

TEST_F(SamplerTest, BiasesMoveLogits) {
  const std::vector<float> logits = logits_of({0.5, 0.3, 0.2});
  SamplingOptions options{.temperature = 0};
  options.logit_bias = {{.token = 0, .bias = -std::numeric_limits<float>::infinity()}};
  EXPECT_EQ(Sampler(model_, options).sample(logits), 1);
  options.logit_bias.push_back({.token = 2, .bias = 5});
  EXPECT_EQ(Sampler(model_, options).sample(logits), 2);
  options.logit_bias = {{.token = kVocab, .bias = 1}};
  expect_refused(options);
  options.logit_bias = {{.token = 1, .bias = std::numeric_limits<float>::quiet_NaN()}};
  expect_refused(options);
}

TEST_F(SamplerTest, TokensThatTheFileForbidsAreNeverChosen) {
  const TinyModel file({.edit_metadata = [](gguf_context* metadata) {
    const std::int32_t tokens[] = {0, 'b' + 3, kVocab + 5};
    gguf_set_arr_data(metadata, "tokenizer.ggml.suppress_tokens", GGUF_TYPE_INT32, tokens, 3);
  }});
  const auto model = Model::load(file.path());
  const std::vector<float> logits = logits_of({0.7, 0.2, 0.1});
  SamplingOptions options{.temperature = 0};
  EXPECT_EQ(Sampler(model, options).sample(logits), 1);
  options.logit_bias = {{.token = 0, .bias = 1e6F}};
  EXPECT_EQ(Sampler(model, options).sample(logits), 1);
  EXPECT_EQ(drawn(model, {.temperature = 100}, "temperature", logits), (std::set<Token>{1, 2}));
  // Nor does a grammar bring one back.
  std::vector<float> letters(kVocab, 0);
  letters['b' + 3] = 10;
  EXPECT_EQ(Sampler(model, {.temperature = 0, .grammar = "root ::= [bc]"}).sample(letters), 'c' + 3);
  EXPECT_EQ(Sampler(model, {.samplers = {"infill"}, .grammar = "root ::= [bc]"}).sample(letters), 'c' + 3);
}

// Tokens that a grammar or a penalty has made impossible must not affect sums of probabilities.
TEST_F(SamplerTest, ImpossibleTokensSpoilNothing) {
  std::vector<float> logits(kVocab, -1000);
  logits[7] = 1;
  logits[8] = 0.5F;
  logits[9] = -std::numeric_limits<float>::infinity();
  std::vector<SamplingOptions> all(4);
  all[0].typical_p = 0.9F;
  all[1].dynatemp_range = 0.5F;
  all[2].mirostat = 1;
  all[3].mirostat = 2;
  for (SamplingOptions& options : all) {
    options.presence_penalty = 500;
    options.samplers = {"penalties", "typ_p", "temperature"};
    options.seed = 1;
    Sampler sampler(model_, options);
    sampler.accept(8);
    EXPECT_EQ(sampler.sample(logits), 7);
    for (int i = 0; i < 50; ++i) {
      const Token token = sampler.sample(logits);
      EXPECT_TRUE(token == 7 || token == 8) << token;
    }
  }
}

TEST_F(SamplerTest, OrderMatters) {
  // Top-p on the tempered distribution keeps more tokens than on the model's own.
  const std::vector<float> logits = logits_of({0.7, 0.2, 0.1});
  const SamplingOptions options{.temperature = 10, .top_p = 0.6F};
  EXPECT_EQ(drawn(model_, options, "top_p;temperature", logits), std::set<Token>{0});
  EXPECT_GT(drawn(model_, options, "temperature;top_p", logits).size(), 1U);
  EXPECT_THROW(SamplingOptions::parse_samplers("top_p;top_p"), Error);
  EXPECT_THROW(SamplingOptions::parse_samplers("top_p;"), Error);
  EXPECT_TRUE(SamplingOptions::parse_samplers("").empty());
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
  expect_refused({.typical_p = -1});
  expect_refused({.xtc_probability = 2});
  expect_refused({.dynatemp_range = kNaN});
  expect_refused({.dry_multiplier = kInfinity});
  expect_refused({.dry_sequence_breakers = {""}});
  expect_refused({.dry_sequence_breakers = std::vector<std::string>(17, "a")});
  expect_refused({.mirostat = 3});
  expect_refused({.samplers = {"odd"}});
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
        "root ::= y root \"c\" | \"b\"\ny ::= z z\nz ::= \"a\" |", "root ::= \"a\"{3,2}", "root ::= \"a\"{2000000000}",
        "root ::= *", "root ::= \"\\q\"", "root ::= \"a\" )", "root ::= <nope>", "root ::= \"\\x1\"", "root ::= \xff",
        "root ::= [a"}) {
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
