// Codes of keys by what they do to scores. A key's error e moves the score of a query q by q.e, and that of all queries
// with second moment M by e'M e in the mean square. So a key's numbers are coded one after the other, and those to come
// make good, as far as M lets them, what the ones before have got wrong: error feedback as of GPTQ (Frantar et al.,
// 2022) and LDLQ (Chee et al., 2023), for rows of the cache instead of rows of weights. Codes and scales are stored and
// read as ever (rotated_codes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "winnow/entry_type.h"

namespace winnow::kernels {

// Immutable.
class CodeFeedback {
 public:
  // Of M plus a tenth of the mean of its diagonal, so that few queries are not taken at their word. Nothing where M is
  // zero, not finite or no second moment.
  //   moment: [head_dim][head_dim], the mean of q q' over queries as they meet the keys
  static std::optional<CodeFeedback> of(std::span<const double> moment, int head_dim);

  static std::size_t bytes_for(int head_dim);

  int head_dim() const { return static_cast<int>(order_.size()); }
  // Which of a rotated row's numbers is coded in which step: those first that queries look at most.
  std::span<const std::int32_t> order() const { return order_; }
  // [head_dim] of a step: how much of its number's error each later step subtracts.
  const float* shares(int step) const { return shares_.data() + std::ptrdiff_t{step} * head_dim(); }

 private:
  CodeFeedback(std::vector<std::int32_t> order, std::vector<float> shares)
      : order_(std::move(order)), shares_(std::move(shares)) {}

  std::vector<std::int32_t> order_;
  std::vector<float> shares_;  // [head_dim][head_dim]
};

// Rows that are coded side by side.
inline constexpr int kFeedbackRows = 16;

// The nearest magnitudes [n] at a row's scale, step by step, of kFeedbackRows rows.
//   scales: [head_dim][kFeedbackRows] by step
//   y: likewise the rotated rows; becomes the numbers that were coded, with what was fed back
//   index: likewise, of the magnitudes chosen
void choose_with_feedback(const CodeFeedback& feedback, std::span<const float> magnitudes, const float* scales,
                          float* y, std::int32_t* index);

}  // namespace winnow::kernels
