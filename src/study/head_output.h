// What a cut of a context changes in a head's attention output, for queries that came later: gone entries, their codes
// and refitted values together, where LU-KV's importance counts the attention that is gone.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/layer_view.h"

namespace winnow {

// One KV head, all query heads of its group. Thread-safe once made.
class HeadOutput {
 public:
  // The view's last n_rows queries over the first n_context entries and those that followed, each row over what was
  // there at its time. The view holds every token's entry, W_O and n_rows window rows, all of later tokens.
  HeadOutput(const LayerView& view, int kv_head, std::int32_t n_context, int n_rows);

  // Mean over the rows of the sum over query heads of || (y - y') W_O[h] ||_2^2, y' being the output where n entries
  // stand for the context's: keys [n][key_dim], values [n][value_dim], as they are read.
  double error(std::int32_t n, const float* keys, const float* values) const;
  // The same of y alone.
  double square() const { return square_; }

 private:
  // [n_rows][n_group][value_dim]
  std::vector<float> output(std::int32_t n, const float* keys, const float* values) const;
  double mean_square(const std::vector<float>& outputs) const;

  kernels::AttentionShape shape_;
  std::vector<float> sink_logits_;  // [n_group], empty without
  int n_rows_;
  std::int32_t n_later_;
  std::vector<float> q_;                          // [n_rows][n_group][key_dim]
  std::vector<float> later_keys_, later_values_;  // [n_later][key_dim], [n_later][value_dim]
  std::vector<std::vector<double>> gram_;         // [n_group], see projection_gram
  std::vector<float> full_;                       // y
  double square_ = 0;
};

}  // namespace winnow
