#include <cmath>
#include <unordered_map>

#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

constexpr std::size_t kLongText = 200;  // from this length on difflib treats frequent characters as junk

// Counts the characters that Python's difflib.SequenceMatcher(None, a, b) matches.
class BlockMatcher {
 public:
  BlockMatcher(TextView a, TextView b) : a_(a), b_(b) {
    for (std::size_t j = 0; j < b.size(); ++j) positions_[b[j]].push_back(j);
    if (b.size() < kLongText) return;
    const std::size_t most = b.size() / 100 + 1;
    std::erase_if(positions_, [&](const auto& entry) { return entry.second.size() > most; });
  }

  std::size_t matched() const { return matched(0, a_.size(), 0, b_.size()); }

 private:
  struct Block {
    std::size_t a, b, size;
  };

  std::size_t matched(std::size_t a_begin, std::size_t a_end, std::size_t b_begin, std::size_t b_end) const {
    if (a_begin == a_end || b_begin == b_end) return 0;
    const Block block = longest(a_begin, a_end, b_begin, b_end);
    if (block.size == 0) return 0;
    return block.size + matched(a_begin, block.a, b_begin, block.b) +
           matched(block.a + block.size, a_end, block.b + block.size, b_end);
  }

  // Returns the longest common block, of equals the first in a, then in b, extended by equal characters of any kind.
  Block longest(std::size_t a_begin, std::size_t a_end, std::size_t b_begin, std::size_t b_end) const {
    Block best = {a_begin, b_begin, 0};
    std::unordered_map<std::size_t, std::size_t> lengths;  // lengths of blocks that end at a position of b
    for (std::size_t i = a_begin; i < a_end; ++i) {
      std::unordered_map<std::size_t, std::size_t> now;
      const auto found = positions_.find(a_[i]);
      if (found != positions_.end()) {
        for (const std::size_t j : found->second) {
          if (j < b_begin) continue;
          if (j >= b_end) break;
          const auto before = j == 0 ? lengths.end() : lengths.find(j - 1);
          const std::size_t length = 1 + (before == lengths.end() ? 0 : before->second);
          now[j] = length;
          if (length > best.size) best = {i + 1 - length, j + 1 - length, length};
        }
      }
      lengths = std::move(now);
    }
    while (best.a > a_begin && best.b > b_begin && a_[best.a - 1] == b_[best.b - 1]) {
      --best.a;
      --best.b;
      ++best.size;
    }
    while (best.a + best.size < a_end && best.b + best.size < b_end &&
           a_[best.a + best.size] == b_[best.b + best.size]) {
      ++best.size;
    }
    return best;
  }

  TextView a_, b_;
  std::unordered_map<char32_t, std::vector<std::size_t>> positions_;  // in b, ascending
};

Text first_line_of_code(TextView answer) {
  for (const Text& line : split_at(strip_left(answer, '\n'), '\n')) {
    const bool other = line.find('`') != Text::npos || line.find('#') != Text::npos || line.find(U"//") != Text::npos;
    if (!other) return line;
  }
  return {};
}

}  // namespace

int fuzzy_ratio(TextView a, TextView b) {
  if (a == b) return 100;
  if (a.empty() || b.empty()) return 0;
  const auto matched = static_cast<double>(BlockMatcher(a, b).matched());
  return static_cast<int>(std::nearbyint(100 * (2.0 * matched / static_cast<double>(a.size() + b.size()))));
}

double line_similarity(TextView answer, TextView truth) {
  return fuzzy_ratio(first_line_of_code(answer), truth) / 100.0;
}

}  // namespace winnow::eval
