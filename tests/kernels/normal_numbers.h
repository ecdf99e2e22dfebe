// Random inputs of the kernels' tests.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace winnow::kernels {

inline std::vector<float> normal_numbers(std::size_t n, unsigned seed, float mean = 0, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(mean, deviation);
  std::vector<float> numbers(n);
  for (float& number : numbers) number = distribution(random);
  return numbers;
}

}  // namespace winnow::kernels
