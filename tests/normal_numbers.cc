#include "normal_numbers.h"

namespace winnow::test {

void fill_normal(std::span<float> numbers, std::mt19937& random, float mean, float deviation) {
  std::normal_distribution<float> distribution(mean, deviation);
  for (float& number : numbers) number = distribution(random);
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
