#include "winnow/log_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "normal_numbers.h"

namespace winnow {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(unsigned seed) { return test::normal_numbers(1000, seed, 0, 5); }

TEST(LogSoftmax, ProbabilitiesAddUpToOne) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const std::vector<float> logits = random_logits(seed);
    std::vector<float> row(logits.size());
    log_softmax(logits, row);
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      sum += std::exp(static_cast<double>(row[i]));
      EXPECT_NEAR(static_cast<double>(row[i]), log_probability(logits, static_cast<std::int32_t>(i)), 2e-6);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(LogSoftmax, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits{1e4F, 1e4F, -1e4F};
  EXPECT_NEAR(log_probability(logits, 0), -std::log(2.0), 1e-12);
  EXPECT_EQ(std::exp(log_probability(logits, 2)), 0);
}

TEST(LogSoftmax, MayOverwriteItsLogits) {
  std::vector<float> row = random_logits(1), expected(row.size());
  log_softmax(row, expected);
  log_softmax(row, row);
  EXPECT_EQ(row, expected);
}

TEST(KlDivergence, IsZeroOfTheSameAndPositiveOfOthers) {
  const std::vector<float> p = random_logits(1), q = random_logits(2);
  std::vector<float> shifted = p;
  for (float& logit : shifted) logit += 3;
  EXPECT_NEAR(kl_divergence(p, log_sum_exp(p), shifted, log_sum_exp(shifted)), 0, 1e-6);
  EXPECT_GT(kl_divergence(p, log_sum_exp(p), q, log_sum_exp(q)), 0.1);
}

// The divergence of two coins is the sum of p log(p / q).
TEST(KlDivergence, IsTheFormula) {
  const std::vector<float> p{std::log(0.5F), std::log(0.5F)}, q{std::log(0.25F), std::log(0.75F)};
  EXPECT_NEAR(kl_divergence(p, 0, q, 0), 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3), 1e-6);
}

TEST(KlDivergence, TheImpossibleAddsNothingAndWhatIsNoNumberStaysVisible) {
  const std::vector<float> p{0, -kInfinity}, q{0, -kInfinity}, broken{0, std::nanf("")};
  EXPECT_EQ(kl_divergence(p, log_sum_exp(p), q, log_sum_exp(q)), 0);
  EXPECT_TRUE(std::isnan(kl_divergence(broken, 0, q, 0)));
}

}  // namespace
}  // namespace winnow
