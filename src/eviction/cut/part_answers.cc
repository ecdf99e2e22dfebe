#include "eviction/cut/part_answers.h"

#include <cmath>
#include <numeric>

#include "winnow/error.h"
#include "winnow/head_allocator.h"

namespace winnow {
namespace {

[[noreturn]] void refuse(const std::string& part, const std::string& what, const std::string& expected) {
  throw Error(ErrorCode::kInvalidArgument, part + " gave " + what + ": it must give " + expected);
}

std::string at(int layer, std::size_t head) {
  return " in layer " + std::to_string(layer) + ", KV head " + std::to_string(head);
}

void check_count(const std::string& part, const std::string& what, std::size_t given, std::size_t expected) {
  if (given != expected) refuse(part, std::to_string(given) + " " + what, std::to_string(expected));
}

}  // namespace

void check_scores(const std::string& scorer, const LayerEvidence& evidence, const LayerScores& scores) {
  const std::string part = "the scorer '" + scorer + "'";
  check_count(part, "lists of scores, one for each KV head", scores.size(),
              static_cast<std::size_t>(evidence.n_kv_head()));
  for (std::size_t h = 0; h < scores.size(); ++h) {
    const auto n = static_cast<std::size_t>(evidence.n_prefix(static_cast<int>(h)));
    if (scores[h].size() == n) continue;
    refuse(part, std::to_string(scores[h].size()) + " scores" + at(evidence.layer().layer, h),
           std::to_string(n) + ", one for each entry before the observation window");
  }
}

void check_weights(const std::string& part, std::span<const double> weights, std::size_t n) {
  check_count(part, "weights", weights.size(), n);
  for (const double weight : weights) {
    if (!(weight >= 0)) refuse(part, "the weight " + std::to_string(weight), "numbers from 0 up");
  }
  if (!std::isfinite(std::accumulate(weights.begin(), weights.end(), 0.0))) {
    refuse(part, "weights whose sum is infinite", "smaller ones");
  }
}

void check_shares(const std::string& allocator, int layer, std::span<const double> shares, std::int64_t budget,
                  const LayerRanking& ranking) {
  constexpr double kTolerance = 1e-3;  // of an entry; rounding to entries takes care of less
  const std::string part = "the head allocator '" + allocator + "'";
  const std::vector<std::int64_t> caps = head_caps(ranking);
  check_count(part, "shares, one for each KV head", shares.size(), caps.size());
  for (std::size_t h = 0; h < shares.size(); ++h) {
    if (shares[h] >= -kTolerance && shares[h] <= static_cast<double>(caps[h]) + kTolerance) continue;
    refuse(part, "a share of " + std::to_string(shares[h]) + at(layer, h),
           "from 0 to the head's " + std::to_string(caps[h]) + " candidates");
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (std::abs(sum - static_cast<double>(budget)) <= kTolerance) return;
  refuse(part, "shares that add up to " + std::to_string(sum) + " in layer " + std::to_string(layer),
         "shares that add up to the layer's budget of " + std::to_string(budget));
}

void check_ceilings(const std::string& allocator, int layer, std::span<const std::int64_t> ceilings,
                    const LayerRanking& ranking) {
  const std::string part = "the head allocator '" + allocator + "'";
  const std::vector<std::int64_t> caps = head_caps(ranking);
  check_count(part, "ceilings, one for each KV head", ceilings.size(), caps.size());
  for (std::size_t h = 0; h < ceilings.size(); ++h) {
    if (ceilings[h] >= 0 && ceilings[h] <= caps[h]) continue;
    refuse(part, "a ceiling of " + std::to_string(ceilings[h]) + at(layer, h),
           "from 0 to the head's " + std::to_string(caps[h]) + " candidates");
  }
}

void check_chosen(const std::string& selector, std::span<const std::int32_t> chosen, std::int64_t budget,
                  std::int64_t n_candidates) {
  const std::string part = "the selector '" + selector + "'";
  check_count(part, "candidates", chosen.size(), static_cast<std::size_t>(budget));
  std::int32_t last = -1;
  for (const std::int32_t candidate : chosen) {
    if (candidate <= last || candidate >= n_candidates) {
      refuse(part, "the candidate " + std::to_string(candidate) + " behind " + std::to_string(last),
             "ascending offsets from 0 to " + std::to_string(n_candidates - 1));
    }
    last = candidate;
  }
}

}  // namespace winnow
