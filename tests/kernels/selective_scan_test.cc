// Mamba-2's scan against its definition in double precision, in turns of every size.
#include "kernels/recurrences/selective_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

struct Shape {
  std::size_t key_dim, value_dim, n_key_heads, n_value_heads;
  std::size_t row_size() const { return n_value_heads * value_dim + 2 * n_key_heads * key_dim; }
};

struct Inputs {
  std::vector<float> rows, steps, decay, step_bias, skip;
};

// out [n_rows][n_value_heads][value_dim].
std::vector<double> reference(const Shape& s, const Inputs& in, std::size_t n_rows) {
  const std::size_t n_values = s.n_value_heads * s.value_dim;
  std::vector<double> out(n_rows * n_values);
  for (std::size_t h = 0; h < s.n_value_heads; ++h) {
    std::vector<std::vector<double>> state(s.key_dim, std::vector<double>(s.value_dim));
    const std::size_t group = h * s.n_key_heads / s.n_value_heads;
    for (std::size_t r = 0; r < n_rows; ++r) {
      const float* x = in.rows.data() + r * s.row_size() + h * s.value_dim;
      const float* b = in.rows.data() + r * s.row_size() + n_values + group * s.key_dim;
      const float* c = b + s.n_key_heads * s.key_dim;
      const double step = std::log1p(std::exp(double{in.steps[r * s.n_value_heads + h]} + double{in.step_bias[h]}));
      const double kept = std::exp(step * double{in.decay[h]});
      for (std::size_t j = 0; j < s.value_dim; ++j) {
        double y = double{in.skip[h]} * double{x[j]};
        for (std::size_t i = 0; i < s.key_dim; ++i) {
          state[i][j] = kept * state[i][j] + step * double{x[j]} * double{b[i]};
          y += state[i][j] * double{c[i]};
        }
        out[(r * s.n_value_heads + h) * s.value_dim + j] = y;
      }
    }
  }
  return out;
}

class SelectiveScanTest : public EveryIsa {};

TEST_P(SelectiveScanTest, IsTheDefinitionInTurnsOfAnySize) {
  constexpr std::size_t kRows = 29;
  for (const Shape& s : {Shape{16, 7, 1, 3}, Shape{48, 16, 3, 6}, Shape{128, 64, 2, 4}}) {
    SCOPED_TRACE(s.key_dim);
    const Inputs in{.rows = normal_numbers(kRows * s.row_size(), 1, 0, 0.5F),
                    .steps = normal_numbers(kRows * s.n_value_heads, 2, 0, 2),
                    .decay = normal_numbers(s.n_value_heads, 3, -0.4F, 0.1F),
                    .step_bias = normal_numbers(s.n_value_heads, 4, 0, 1),
                    .skip = normal_numbers(s.n_value_heads, 5, 1, 0.5F)};
    const SelectiveScan scan{.key_dim = static_cast<std::int64_t>(s.key_dim),
                             .value_dim = static_cast<std::int64_t>(s.value_dim),
                             .n_key_heads = static_cast<std::int64_t>(s.n_key_heads),
                             .n_value_heads = static_cast<std::int64_t>(s.n_value_heads),
                             .decay = in.decay.data(),
                             .step_bias = in.step_bias.data(),
                             .skip = in.skip.data()};
    const std::vector<double> expected = reference(s, in, kRows);
    std::vector<float> out(expected.size()), state(s.n_value_heads * s.value_dim * s.key_dim), next(state.size());
    std::size_t at = 0;
    for (const std::size_t n_rows : {1U, 7U, 1U, 20U}) {
      const bool in_place = n_rows == 7;
      for (std::int64_t head = 0; head < scan.n_value_heads; ++head) {
        selective_scan(scan, in.rows.data() + at * s.row_size(), in.steps.data() + at * s.n_value_heads,
                       static_cast<std::int64_t>(n_rows), state.data(), in_place ? state.data() : next.data(),
                       out.data() + at * s.n_value_heads * s.value_dim, head);
      }
      if (!in_place) state.swap(next);
      at += n_rows;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(double{out[i]}, expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, SelectiveScanTest, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
