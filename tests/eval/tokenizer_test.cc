// The lengths of generated samples in a real model's tokens.
#include "sample_test_support.h"

namespace winnow::eval {
namespace {

TEST(Tokenizer, GeneratedSamplesFitByTheModelsOwnTokens) {
  const char* path = std::getenv("WINNOW_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "no model: WINNOW_TEST_MODEL is not set";
  const auto model = Model::load(path);
  SampleOptions options;
  use_tokenizer(options, model);
  options.limit = 2;
  for (const std::int32_t length : {2048, 4096}) {
    options.lengths = {length};
    for (const Sample& sample : find_benchmark("ruler").samples(options)) {
      const auto n = static_cast<std::int32_t>(model->tokenize(whole_prompt(sample), true, false).size());
      EXPECT_LE(n + sample.turns[0].max_new, length) << sample.task;
      EXPECT_GE(n + sample.turns[0].max_new, length / 2) << sample.task;
    }
  }
  options.lengths = {1000};
  for (const Sample& sample : find_benchmark("niah").samples(options)) {
    EXPECT_NEAR(static_cast<double>(model->tokenize(whole_prompt(sample), false, false).size()), 840, 10);
  }
  for (const Sample& sample : find_benchmark("fidelity").samples(options)) {
    EXPECT_NEAR(static_cast<double>(model->tokenize(sample.context, false, false).size()), 1000, 6);
    EXPECT_NEAR(static_cast<double>(model->tokenize(sample.turns[0].references[0], false, false).size()), 64, 6);
  }
  // The pieces of a text add up to the text, whatever it contains.
  const std::string odd = " Ünïcode 北京\n\n\t  12345 <|im_start|> \xF0\x9F\x8D\x95";
  std::string joined;
  for (const std::string& part : options.split_tokens(odd)) joined += part;
  EXPECT_EQ(joined, odd);
}

}  // namespace
}  // namespace winnow::eval
