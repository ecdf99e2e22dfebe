// A seeded random generator with the same output on every machine and with every standard library.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::eval {

class Random {
 public:
  // Seeds the generator with `seed` and the name of what is drawn, so that one sample does not depend on which others
  // are made.
  Random(std::uint64_t seed, std::string_view name);

  std::uint64_t below(std::uint64_t n);  // returns 0 to n - 1; n > 0
  template <typename Element>
  const Element& one_of(const std::vector<Element>& elements) {
    return elements[below(elements.size())];
  }
  template <typename Element>
  void shuffle(std::vector<Element>& elements) {
    for (std::size_t i = elements.size(); i > 1; --i) std::swap(elements[i - 1], elements[below(i)]);
  }
  // Returns k distinct numbers of 0 to n - 1 in random order; k <= n.
  std::vector<std::size_t> distinct(std::size_t k, std::size_t n);
  std::string letters(std::size_t n, char first);  // n of the 26 letters from `first` on
  std::string uuid();                              // version 4

 private:
  std::mt19937_64 engine_;
};

}  // namespace winnow::eval
