// Measures how a cut of a context changes a head's attention output for later queries: dropped entries, quantisation
// and refitted values together, whereas LU-KV's importance counts the attention that is lost.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/layer_view.h"

namespace winnow {

// The attention output of one KV head, with all query heads of its group. Thread-safe once constructed.
class HeadOutput {
 public:
  // Takes the view's last n_rows queries over the first n_context entries and those that follow; each row sees the
  // entries that existed at its time. The view must hold every token's entry, W_O and n_rows window rows, all of later
  // tokens.
  HeadOutput(const LayerView& view, int kv_head, std::int32_t n_context, int n_rows);

  // Returns the mean over the rows of the sum over query heads of || (y - y') W_O[h] ||_2^2, where y' is the output if
  // n entries replace the context's: keys [n][key_dim], values [n][value_dim], as they are read.
  double error(std::int32_t n, const float* keys, const float* values) const;
  // Returns the same for y alone.
  double square() const { return square_; }

 private:
  // Returns [n_rows][n_group][value_dim].
  std::vector<float> output(std::int32_t n, const float* keys, const float* values) const;
  double mean_square(const std::vector<float>& outputs) const;

  kernels::AttentionShape shape_;
  std::vector<float> sink_logits_;  // [n_group]; empty without
  int n_rows_;
  std::int32_t n_later_;
  std::vector<float> q_;                          // [n_rows][n_group][key_dim]
  std::vector<float> later_keys_, later_values_;  // [n_later][key_dim], [n_later][value_dim]
  std::vector<std::vector<double>> gram_;         // [n_group], see projection_gram
  std::vector<float> full_;                       // y
  double square_ = 0;
};

}  // namespace winnow
