#include "eval/random.h"

#include <unordered_map>

#include "base/fnv1a.h"

namespace winnow::eval {

Random::Random(std::uint64_t seed, std::string_view name) {
  engine_.seed(Fnv1a(seed * 0x9e3779b97f4a7c15U).add(name).value());
}

std::uint64_t Random::below(std::uint64_t n) {
  const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} % n;
  std::uint64_t value = engine_();
  while (value >= limit) value = engine_();
  return value % n;
}

std::vector<std::size_t> Random::distinct(std::size_t k, std::size_t n) {
  std::unordered_map<std::size_t, std::size_t> moved;  // a shuffle of 0..n-1 that stores only what it moved
  const auto at = [&](std::size_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < k; ++i) {
    const std::size_t j = i + below(n - i);
    drawn.push_back(at(j));
    moved[j] = at(i);
  }
  return drawn;
}

std::string Random::letters(std::size_t n, char first) {
  std::string word;
  for (std::size_t i = 0; i < n; ++i) word += static_cast<char>(first + static_cast<char>(below(26)));
  return word;
}

std::string Random::uuid() {
  std::string text = "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx";
  for (char& c : text) {
    if (c == 'x') c = "0123456789abcdef"[below(16)];
    if (c == 'y') c = "89ab"[below(4)];
  }
  return text;
}

}  // namespace winnow::eval
