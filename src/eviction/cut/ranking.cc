#include "winnow/ranking.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "winnow/error.h"

namespace winnow {
namespace {

// Returns bits that are ordered like the floats; -0 and 0 are equal.
std::uint32_t ordered_bits(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace

// A radix sort, whose time depends on the number of scores alone: for 32,768 scores it takes an eighth of std::sort's
// time (.19 and 1.39 ms on a Zen 4).
std::vector<std::int32_t> order_by_score(const std::vector<float>& scores) {
  constexpr int kDigits = 3, kBits = 11;
  constexpr std::size_t kValues = std::size_t{1} << kBits;
  struct Item {
    std::uint32_t key;  // descending scores are ascending keys
    std::int32_t index;
  };
  const std::size_t n = scores.size();
  std::vector<Item> items(n), sorted(n);
  std::vector<std::size_t> first(kDigits * kValues);  // [digit][value] the begin of the items with this value
  const auto digit = [](std::uint32_t key, int d) { return static_cast<std::size_t>(key >> (d * kBits)) % kValues; };
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t from = n - 1 - i;  // of equal scores the later token comes first, and the passes are stable
    items[i] = {~ordered_bits(scores[from]), static_cast<std::int32_t>(from)};
    for (int d = 0; d < kDigits; ++d) ++first[static_cast<std::size_t>(d) * kValues + digit(items[i].key, d)];
  }
  for (int d = 0; d < kDigits; ++d) {
    const auto of_digit = std::span(first).subspan(static_cast<std::size_t>(d) * kValues, kValues);
    std::exclusive_scan(of_digit.begin(), of_digit.end(), of_digit.begin(), std::size_t{0});
    for (const Item& item : items) sorted[of_digit[digit(item.key, d)]++] = item;
    items.swap(sorted);
  }
  std::vector<std::int32_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = items[i].index;
  return order;
}

LayerRanking::LayerRanking(const LayerEvidence& evidence, const LayerScores& scores)
    : heads_(evidence.n_kv_head()), positions_(evidence.n_kv_head()), first_position_(evidence.n_kv_head()) {
  for (int h = 0; h < n_kv_head(); ++h) {
    for (std::size_t i = 0; i < scores[h].size(); ++i) {
      if (std::isfinite(scores[h][i])) continue;
      throw Error(ErrorCode::kInvalidArgument, "the score of entry " + std::to_string(i) + " in layer " +
                                                   std::to_string(evidence.layer().layer) + ", KV head " +
                                                   std::to_string(h) + " is " +
                                                   (std::isnan(scores[h][i]) ? "not a number" : "infinite") +
                                                   ": the model's keys, values or queries are broken there");
    }
    n_candidates_ += evidence.n_candidates(h);
  }
  evidence.for_each_head([&](int h) {
    const std::vector<float> candidates(scores[h].begin() + evidence.n_sinks(h), scores[h].end());
    HeadRanking& head = heads_[h];
    head.order = order_by_score(candidates);
    head.scores.reserve(candidates.size());
    for (const std::int32_t i : head.order) head.scores.push_back(candidates[i]);

    const std::vector<std::int32_t> positions = evidence.positions(h);
    const auto first = positions.begin() + evidence.n_sinks(h);
    const auto last = positions.begin() + evidence.n_prefix(h);
    if (first == last) return;
    first_position_[h] = *first;
    if (*(last - 1) - *first != last - first - 1) positions_[h].assign(first, last);
  });
}

std::int32_t LayerRanking::position(int head, std::int32_t candidate) const {
  return positions_[head].empty() ? first_position_[head] + candidate : positions_[head][candidate];
}

const std::vector<std::uint16_t>& LayerRanking::flat_order(std::int64_t n) {
  n = std::min(n, n_candidates_);
  if (std::ssize(flat_order_) >= n) return flat_order_;
  flat_order_.clear();
  flat_order_.reserve(n);
  std::vector<std::size_t> next(heads_.size(), 0);
  while (std::ssize(flat_order_) < n) {
    int best = -1;
    for (int h = 0; h < n_kv_head(); ++h) {
      if (next[h] == heads_[h].order.size()) continue;
      if (best >= 0) {
        const float score = heads_[h].scores[next[h]];
        const float best_score = heads_[best].scores[next[best]];
        if (score < best_score) continue;
        if (score == best_score &&
            position(h, heads_[h].order[next[h]]) <= position(best, heads_[best].order[next[best]])) {
          continue;
        }
      }
      best = h;
    }
    ++next[best];
    flat_order_.push_back(static_cast<std::uint16_t>(best));
  }
  return flat_order_;
}

std::vector<std::int64_t> LayerRanking::flat_counts(std::int64_t n) {
  const std::vector<std::uint16_t>& order = flat_order(n);
  std::vector<std::int64_t> counts(heads_.size(), 0);
  for (std::int64_t i = 0; i < std::min(n, n_candidates_); ++i) ++counts[order[i]];
  return counts;
}

}  // namespace winnow
