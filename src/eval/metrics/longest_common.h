// The table of the longest common subsequences of two lists of words. Two packages walk back through it differently.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "eval/python_str.h"

namespace winnow::eval {

class CommonTable {
 public:
  CommonTable(const std::vector<Text>& a, const std::vector<Text>& b)
      : a_(a), b_(b), width_(b.size() + 1), length_((a.size() + 1) * width_) {
    for (std::size_t i = 1; i <= a.size(); ++i) {
      for (std::size_t j = 1; j <= b.size(); ++j) {
        length_[i * width_ + j] = a[i - 1] == b[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
      }
    }
  }

  // Returns the indices in `a` of one longest common subsequence, last first. Where both remaining lengths are equal,
  // the walk goes back in a if `ties_in_a`, else in b.
  std::vector<std::size_t> matched(bool ties_in_a) const {
    std::vector<std::size_t> indices;
    std::size_t i = a_.size();
    std::size_t j = b_.size();
    while (i > 0 && j > 0) {
      if (a_[i - 1] == b_[j - 1]) {
        indices.push_back(--i);
        --j;
      } else if (ties_in_a ? at(i - 1, j) >= at(i, j - 1) : at(i - 1, j) > at(i, j - 1)) {
        --i;
      } else {
        --j;
      }
    }
    return indices;
  }

 private:
  std::uint32_t at(std::size_t i, std::size_t j) const { return length_[i * width_ + j]; }

  const std::vector<Text>& a_;
  const std::vector<Text>& b_;
  std::size_t width_;
  std::vector<std::uint32_t> length_;  // [a.size() + 1][b.size() + 1], of the first i and the first j words
};

}  // namespace winnow::eval
