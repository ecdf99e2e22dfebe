// Codes of keys that minimise the errors of scores. A key's error e moves the score of a query q by q.e, and the scores
// of queries with second moment M by e'M e in the mean square. So a key's numbers are quantised one after the other,
// and later ones compensate, as far as M allows, for the errors of earlier ones: error feedback as in GPTQ (Frantar et
// al., 2022) and LDLQ (Chee et al., 2023), for rows of the cache instead of rows of weights. Codes and scales are
// stored and read as usual (rotated_codes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "winnow/entry_type.h"

namespace winnow::kernels {

// The feedback for the keys of one head. Immutable.
class CodeFeedback {
 public:
  // Returns the feedback of M plus a tenth of the mean of its diagonal, which keeps it stable for few queries; nullopt
  // if M is zero, not finite or not a second moment.
  //   moment: [head_dim][head_dim], the mean of q q' over queries as they meet the keys
  static std::optional<CodeFeedback> of(std::span<const double> moment, int head_dim);

  // Returns the bytes of one head's feedback.
  static std::size_t bytes_for(int head_dim);

  int head_dim() const { return static_cast<int>(order_.size()); }
  // Returns which of a rotated row's numbers is quantised in each step: those with the largest weight in queries come
  // first.
  std::span<const std::int32_t> order() const { return order_; }
  // Returns the fraction [head_dim] of a step's error that each later step subtracts.
  const float* shares(int step) const { return shares_.data() + std::ptrdiff_t{step} * head_dim(); }

 private:
  CodeFeedback(std::vector<std::int32_t> order, std::vector<float> shares)
      : order_(std::move(order)), shares_(std::move(shares)) {}

  std::vector<std::int32_t> order_;
  std::vector<float> shares_;  // [head_dim][head_dim]
};

// The number of rows that are quantised side by side.
inline constexpr int kFeedbackRows = 16;

// Chooses the nearest magnitude at a row's scale for every number of kFeedbackRows rows, step by step.
//   scales: [head_dim][kFeedbackRows] by step
//   y: [head_dim][kFeedbackRows], the rotated rows; becomes the numbers that were quantised, with the feedback
//   index: [head_dim][kFeedbackRows], the indices of the magnitudes chosen
void choose_with_feedback(const CodeFeedback& feedback, std::span<const float> magnitudes, const float* scales,
                          float* y, std::int32_t* index);

}  // namespace winnow::kernels
