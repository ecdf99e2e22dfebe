// The state of an online softmax over some entries, for one query (FlashAttention, arXiv 2205.14135): maximum m,
// denominator d and weighted sum of values o. Parts of a head's entries are summed separately, and their states are
// merged.
//
// The empty state, {-inf, 0} with zeros for sums of values, is the neutral element: merging it changes no state, and a
// merge into it copies. A state whose maximum is -inf is empty whatever its sum; products beyond float32's range may
// leave one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace winnow::kernels {

// The state of scores s_i in natural units, without the values.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();  // the largest s_i
  float sum = 0.0F;                                     // of exp(s_i - max)

  bool is_empty() const { return sum == 0.0F || max == -std::numeric_limits<float>::infinity(); }
  float log_sum_exp() const { return is_empty() ? -std::numeric_limits<float>::infinity() : max + std::log(sum); }

  // Returns the state of a single score (e.g. a sink logit).
  static SoftmaxState of(float score) { return {.max = score, .sum = 1.0F}; }
};

// The factors of two states' sums of values before these are added up.
struct MergeFactors {
  float into;
  float from;
};

// Makes `into` the state of the entries of both, and returns the factors of their sums of values.
inline MergeFactors merge(SoftmaxState& into, const SoftmaxState& from) {
  if (from.is_empty()) return {1.0F, 0.0F};
  if (into.is_empty()) {
    into = from;
    return {0.0F, 1.0F};
  }
  const float max = std::fmax(into.max, from.max);
  const auto factor = [max](float high) { return high == max ? 1.0F : std::exp(high - max); };
  const MergeFactors factors{factor(into.max), factor(from.max)};
  into = {.max = max, .sum = into.sum * factors.into + from.sum * factors.from};
  return factors;
}

// The states of a KV head's query heads over the same entries, with their sums of values; or those of several slices of
// entries in order.
struct GroupSoftmax {
  std::span<SoftmaxState> states;  // [n_slices][n_group]
  float* values;                   // [n_slices][n_group][value_dim], sum_i exp(s_i - max) v_i
  bool* are_rotated;               // [n_slices] the sums are of rotated values, as codes store them (rotated_codes.h)

  GroupSoftmax slice(int i, int n_group, int value_dim) const {
    const auto n = static_cast<std::size_t>(n_group), at = static_cast<std::size_t>(i);
    return {.states = states.subspan(at * n, n),
            .values = values + at * n * static_cast<std::size_t>(value_dim),
            .are_rotated = are_rotated + at};
  }
};

// The memory for the states of several slices of entries; layers of any size use it in turn.
class GroupSoftmaxes {
 public:
  GroupSoftmaxes() = default;
  GroupSoftmaxes(std::size_t n, int n_group, int value_dim) { reserve(n, n_group, value_dim); }

  // Makes room for n slices of that size. The memory never shrinks.
  void reserve(std::size_t n, int n_group, int value_dim) {
    const std::size_t n_states = n * static_cast<std::size_t>(n_group);
    const std::size_t n_values = n_states * static_cast<std::size_t>(value_dim);
    if (states_.size() < n_states) states_ = std::vector<SoftmaxState>(n_states);
    if (values_.size() < n_values) values_ = std::vector<float>(n_values);
    if (n_slices_ < n) are_rotated_ = std::make_unique<bool[]>(n_slices_ = n);
  }

  std::size_t bytes() const {
    return states_.size() * sizeof(SoftmaxState) + values_.size() * sizeof(float) + n_slices_ * sizeof(bool);
  }

  // Returns the states of the slices [first, first + n).
  GroupSoftmax at(std::size_t first, int n_group, int value_dim, std::size_t n = 1) {
    const auto group = static_cast<std::size_t>(n_group);
    return {.states = std::span(states_).subspan(first * group, n * group),
            .values = values_.data() + first * group * static_cast<std::size_t>(value_dim),
            .are_rotated = are_rotated_.get() + first};
  }

 private:
  std::vector<SoftmaxState> states_;
  std::vector<float> values_;
  std::unique_ptr<bool[]> are_rotated_;
  std::size_t n_slices_ = 0;
};

}  // namespace winnow::kernels
