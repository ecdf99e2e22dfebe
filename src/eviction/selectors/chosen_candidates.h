// The set of candidates that a selector has chosen, which it returns in ascending order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow {

// A set of candidates as a bitmap. A cascade chooses again with every layer, and reading a bitmap in order is faster
// than sorting indices.
class ChosenCandidates {
 public:
  explicit ChosenCandidates(std::size_t n_candidates) : marks_((n_candidates + kBits - 1) / kBits) {}

  // Adds a candidate. Returns false if it was there already.
  bool choose(std::int32_t candidate) {
    const auto i = static_cast<std::size_t>(candidate);
    const std::uint64_t bit = std::uint64_t{1} << i % kBits;
    const bool is_new = (marks_[i / kBits] & bit) == 0;
    marks_[i / kBits] |= bit;
    return is_new;
  }

  // Returns the chosen candidates' offsets, ascending.
  std::vector<std::int32_t> ascending() const {
    std::vector<std::int32_t> chosen;
    for (std::size_t word = 0; word < marks_.size(); ++word) {
      for (std::uint64_t left = marks_[word]; left != 0; left &= left - 1) {
        chosen.push_back(static_cast<std::int32_t>(word * kBits) + std::countr_zero(left));
      }
    }
    return chosen;
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::vector<std::uint64_t> marks_;
};

}  // namespace winnow
