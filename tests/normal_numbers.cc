#include "normal_numbers.h"

#include <algorithm>
#include <cmath>

namespace winnow::test {

// Marsaglia's polar method draws points of the unit disc, and what is slow about it is computed for many of them at
// once, in a loop that compilers make vectors of. std::normal_distribution, which takes twice as long, was a
// quarter of what the kernels' tests took with sanitizers; the numbers are those of libstdc++'s but for rounding.
void fill_normal(std::span<float> numbers, std::mt19937& random, float mean, float deviation) {
  constexpr std::size_t kPoints = 64;
  const auto draw = [&random] { return std::min(static_cast<float>(random()) * 0x1p-32F, 1 - 0x1p-24F) * 2 - 1; };
  while (!numbers.empty()) {
    const std::size_t n = std::min(numbers.size(), 2 * kPoints), n_points = (n + 1) / 2;
    float x[kPoints], y[kPoints], square[kPoints], pairs[2 * kPoints];
    for (std::size_t i = 0; i < n_points;) {
      x[i] = draw();
      y[i] = draw();
      square[i] = x[i] * x[i] + y[i] * y[i];
      i += square[i] <= 1 && square[i] != 0 ? 1 : 0;
    }
    for (std::size_t i = 0; i < n_points; ++i) {
      const float factor = deviation * std::sqrt(-2 * std::log(square[i]) / square[i]);
      pairs[2 * i] = mean + y[i] * factor;
      pairs[2 * i + 1] = mean + x[i] * factor;
    }
    std::copy_n(pairs, n, numbers.begin());
    numbers = numbers.subspan(n);
  }
}

std::vector<float> normal_numbers(std::size_t n, std::mt19937& random, float mean, float deviation) {
  std::vector<float> numbers(n);
  fill_normal(numbers, random, mean, deviation);
  return numbers;
}

std::vector<float> normal_numbers(std::size_t n, unsigned seed, float mean, float deviation) {
  std::mt19937 random(seed);
  return normal_numbers(n, random, mean, deviation);
}

}  // namespace winnow::test
