// The convolutions against double precision, in turns of every size and on parts of the channels.
#include "kernels/recurrences/short_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "normal_numbers.h"

namespace winnow::kernels {
namespace {

using test::normal_numbers;

// Returns y [n_rows][n] from an empty past. Rows are b, c and x if is_gated, else x, with SiLU applied to the outputs.
std::vector<double> reference(const ShortConvolution& convolution, const std::vector<float>& rows, std::size_t n_rows,
                              bool is_gated) {
  const std::size_t width = is_gated ? 3 : 1;
  const auto n = static_cast<std::size_t>(convolution.n_channels);
  const auto n_taps = static_cast<std::size_t>(convolution.n_taps);
  std::vector<double> y(n_rows * n);
  for (std::size_t r = 0; r < n_rows; ++r) {
    for (std::size_t i = 0; i < n; ++i) {
      double sum = convolution.biases != nullptr ? double{convolution.biases[i]} : 0;
      for (std::size_t back = 0; back < std::min(n_taps, r + 1); ++back) {
        const float* row = rows.data() + (r - back) * width * n;
        const double x = is_gated ? double{row[i]} * double{row[2 * n + i]} : double{row[i]};
        sum += double{convolution.weights[i * n_taps + n_taps - 1 - back]} * x;
      }
      y[r * n + i] = is_gated ? double{rows[r * 3 * n + n + i]} * sum : sum / (1 + std::exp(-sum));
    }
  }
  return y;
}

void expect_the_definition(bool is_gated) {
  const std::size_t width = is_gated ? 3 : 1;
  const auto convolve = is_gated ? short_convolution : silu_convolution;
  for (const int n_taps : {2, 3, 4, kMaxTaps}) {
    for (const std::size_t n : {1U, 15U, 16U, 17U, 40U}) {
      SCOPED_TRACE(std::to_string(n_taps) + " taps, " + std::to_string(n) + " channels");
      constexpr std::size_t kRows = 23;
      const std::vector<float> weights = normal_numbers(n * static_cast<std::size_t>(n_taps), 1),
                               rows = normal_numbers(kRows * width * n, 2);
      const std::vector<float> biases = normal_numbers(n, 3);
      const ShortConvolution convolution{.weights = weights.data(),
                                         .biases = is_gated || n_taps == 3 ? nullptr : biases.data(),
                                         .n_channels = static_cast<std::int64_t>(n),
                                         .n_taps = n_taps};
      const std::vector<double> expected = reference(convolution, rows, kRows, is_gated);
      std::vector<float> y(kRows * n), state(static_cast<std::size_t>(n_taps - 1) * n), next(state.size());
      std::size_t at = 0;
      for (const std::size_t n_rows : {1U, 5U, 1U, 16U}) {
        const auto half = static_cast<std::int64_t>(n / 2);
        const bool in_place = n_rows == 5;
        float* to = in_place ? state.data() : next.data();
        for (const auto& [first, last] : {std::pair{std::int64_t{0}, half}, {half, static_cast<std::int64_t>(n)}}) {
          convolve(convolution, rows.data() + at * width * n, static_cast<std::int64_t>(n_rows), state.data(), to,
                   y.data() + at * n, first, last);
        }
        if (!in_place) state.swap(next);
        at += n_rows;
      }
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(double{y[i]}, expected[i], 1e-5) << i;
    }
  }
}

TEST(ShortConvolutionTest, IsTheDefinitionInTurnsOfAnySize) { expect_the_definition(true); }
TEST(ShortConvolutionTest, WithSiluIsTheDefinitionInTurnsOfAnySize) { expect_the_definition(false); }

}  // namespace
}  // namespace winnow::kernels
