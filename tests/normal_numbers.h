// Random inputs of tests. They are drawn in one place, which is optimised in every build: with sanitizers, drawing them
// took up to half of a test's time.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace winnow::test {

// Fills numbers from the normal distribution.
void fill_normal(std::span<float> numbers, std::mt19937& random, float mean = 0, float deviation = 1);

std::vector<float> normal_numbers(std::size_t n, std::mt19937& random, float mean = 0, float deviation = 1);

// Returns the same numbers for the same seed.
std::vector<float> normal_numbers(std::size_t n, unsigned seed, float mean = 0, float deviation = 1);

}  // namespace winnow::test
