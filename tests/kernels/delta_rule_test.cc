// The gated delta rule against its definition in double precision, in turns of every size.
#include "kernels/recurrences/delta_rule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

struct Inputs {
  std::vector<float> qkv, alpha, beta, decay, decay_bias;
};

// Returns outputs [n_rows][n_value_heads][d]. The state S is [key][value] as in the paper.
std::vector<double> reference(const DeltaRule& rule, const Inputs& in, std::size_t n_rows) {
  const auto d = static_cast<std::size_t>(rule.head_dim), n_k = static_cast<std::size_t>(rule.n_key_heads),
             n_v = static_cast<std::size_t>(rule.n_value_heads);
  std::vector<double> out(n_rows * n_v * d);
  for (std::size_t h = 0; h < n_v; ++h) {
    std::vector<std::vector<double>> s(d, std::vector<double>(d));
    for (std::size_t r = 0; r < n_rows; ++r) {
      const float* row = in.qkv.data() + r * (2 * n_k + n_v) * d;
      const auto unit = [&](const float* x) {
        double sum = double{rule.eps};
        for (std::size_t i = 0; i < d; ++i) sum += double{x[i]} * double{x[i]};
        std::vector<double> y(d);
        for (std::size_t i = 0; i < d; ++i) y[i] = double{x[i]} / std::sqrt(sum);
        return y;
      };
      const std::vector<double> q = unit(row + (h % n_k) * d), k = unit(row + (n_k + h % n_k) * d);
      const float* v = row + (2 * n_k + h) * d;
      const double softplus = std::log1p(std::exp(double{in.alpha[r * n_v + h]} + double{in.decay_bias[h]}));
      const double g = std::exp(double{in.decay[h]} * softplus);
      const double b = 1 / (1 + std::exp(-double{in.beta[r * n_v + h]}));
      for (std::size_t j = 0; j < d; ++j) {
        double held = 0;
        for (std::size_t i = 0; i < d; ++i) held += (s[i][j] *= g) * k[i];
        for (std::size_t i = 0; i < d; ++i) s[i][j] += k[i] * b * (double{v[j]} - held);
        double read = 0;
        for (std::size_t i = 0; i < d; ++i) read += s[i][j] * q[i];
        out[(r * n_v + h) * d + j] = read / std::sqrt(static_cast<double>(d));
      }
    }
  }
  return out;
}

class DeltaRuleTest : public EveryIsa {};

TEST_P(DeltaRuleTest, IsTheDefinitionInTurnsOfAnySize) {
  constexpr std::size_t kRows = 29, kKeyHeads = 2, kValueHeads = 6;
  for (const std::size_t d : {16U, 48U, 128U}) {
    SCOPED_TRACE(d);
    const Inputs in{.qkv = normal_numbers(kRows * (2 * kKeyHeads + kValueHeads) * d, 1, 0, 1),
                    .alpha = normal_numbers(kRows * kValueHeads, 2, 0, 2),
                    .beta = normal_numbers(kRows * kValueHeads, 3, 0, 2),
                    .decay = normal_numbers(kValueHeads, 4, -0.4F, 0.1F),
                    .decay_bias = normal_numbers(kValueHeads, 5, 0, 1)};
    const DeltaRule rule{.head_dim = static_cast<std::int64_t>(d),
                         .n_key_heads = kKeyHeads,
                         .n_value_heads = kValueHeads,
                         .eps = 1e-5F,
                         .decay = in.decay.data(),
                         .decay_bias = in.decay_bias.data()};
    const std::vector<double> expected = reference(rule, in, kRows);
    std::vector<float> out(expected.size()), state(kValueHeads * d * d), next(state.size());
    std::size_t at = 0;
    for (const std::size_t n_rows : {1U, 7U, 1U, 20U}) {
      const bool in_place = n_rows == 7;
      for (std::int64_t head = 0; head < rule.n_value_heads; ++head) {
        delta_rule(rule, in.qkv.data() + at * (2 * kKeyHeads + kValueHeads) * d, in.alpha.data() + at * kValueHeads,
                   in.beta.data() + at * kValueHeads, static_cast<std::int64_t>(n_rows), state.data(),
                   in_place ? state.data() : next.data(), out.data() + at * kValueHeads * d, head);
      }
      if (!in_place) state.swap(next);
      at += n_rows;
    }
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(double{out[i]}, expected[i], 1e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, DeltaRuleTest, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
