// What a sequence keeps of its queries, for cuts now and later: the last rows, running moments, and (for h2o, from the
// beginning of a prompt or turn to the cut that ends it) every row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "eviction/evidence.h"
#include "model/hparams.h"

namespace winnow {

// Not thread-safe, but different rows (record) and different heads (add_moments) may be written by different threads.
class QueryEvidence {
 public:
  QueryEvidence(const EvidenceNeeds& needs, const Hparams& hparams);

  const EvidenceNeeds& needs() const { return needs_; }

  // Before n_rows tokens from first_position on go through the layers: room for their rows where every row is asked
  // for, of one layer that the others follow (each is judged before the next begins), or of all.
  void begin_rows(std::int32_t first_position, std::int32_t n_rows, bool all_layers);
  void end_rows();

  // Takes the last rows and the moments of another sequence with the same needs.
  void copy_state(const QueryEvidence& other);

  // q: one row [n_head][head_dim], rotated, of a pass whose last row has the position end - 1.
  void record(int layer, std::int32_t position, std::int32_t end, const float* q);
  // q: rows of one head, `row_stride` floats apart, before rotation. The first row has the position first_position.
  void add_moments(int layer, int head, const float* q, std::int64_t row_stride, std::int32_t n_rows,
                   std::int32_t first_position);
  // [n_head] of one row, or null where nobody asks.
  float* log_sum_exp_row(int layer, std::int32_t position);

  // Fills the evidence fields of a view, with at most max_window_rows of the last rows; pointers live until the next
  // call.
  void fill(LayerView& view, int max_window_rows);

  // What stays of the queries, as bytes: a count and the window's numbers; a count and, per layer, the number of
  // queries, the sums, the outer products (as doubles, all of them).
  void write(std::ostream& out) const;
  // How many bytes these are where the needs are known; the most there can be if they are absurdly many.
  static std::uint64_t written_bytes(const EvidenceNeeds& needs, const Hparams& hparams);
  // Takes what evidence with the same needs wrote; false for anything else, of which a part may have been taken.
  bool read(std::istream& in);

 private:
  struct Moments {
    std::int64_t n = 0;
    std::vector<double> sum;    // [n_head][head_dim]
    std::vector<double> outer;  // [n_head][head_dim][head_dim]
  };
  std::size_t row_floats() const;
  // Index of a row in the two arrays of every row; nothing for one that is not kept.
  std::optional<std::size_t> row_index(int layer, std::int32_t position) const;

  EvidenceNeeds needs_;
  int n_layer_;
  int n_head_;
  int head_dim_;
  std::vector<float> window_;       // [n_layer][window_rows][n_head][head_dim]; position p in slot p % window_rows
  std::vector<Moments> moments_;    // [n_layer]
  std::int32_t first_row_ = 0;      // position of the first row of the two below
  std::int32_t n_rows_ = 0;         // rows of a layer in the two below
  bool all_layers_ = false;         // they have a leading [n_layer]
  std::vector<float> rows_;         // [n_rows][n_head][head_dim]
  std::vector<float> log_sum_exp_;  // [n_rows][n_head]
  std::vector<float> window_rows_;  // the window in order, for fill
  std::vector<double> mean_;
  std::vector<double> covariance_;
};

}  // namespace winnow
