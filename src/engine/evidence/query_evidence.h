// The queries that a sequence saves for cuts now and later, in the layers that methods cut: the last rows (the
// observation window), running moments, and, from the beginning of a prompt or turn to the cut that ends it, every row
// (H2O) or some rows spread over it (reference rows).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <vector>

#include "model/layer_spec.h"
#include "winnow/layer_view.h"

namespace winnow {

// Rotates a row [n_head][key_dim], already rotated, by `positions` more. Rotations add up; the magnitude is already in
// the row.
void rotate_further(float* row, std::size_t n_head, std::size_t key_dim, const RotationView& rotation,
                    std::int32_t positions);

// The reference rows of a layer, rotated for positions after the prompt.
struct ReferenceQueries {
  int n_rows = 0;
  std::vector<float> q = {};  // [n_rows][n_head][key_dim]

  // Makes the view point to these rows, which must outlive it.
  void show_in(LayerView& view) const {
    if (n_rows == 0) return;
    view.reference_q = q.data();
    view.n_reference_rows = n_rows;
  }
};

// Records queries and shows them in views. Not thread-safe, but different threads may record different rows and add
// moments of different heads.
class QueryEvidence {
 public:
  static constexpr std::int32_t kMaxReferenceRows = 192;

  // Saves queries of the layers in `range`.
  QueryEvidence(const EvidenceNeeds& needs, const ModelSpec& spec, LayerRange range);

  const EvidenceNeeds& needs() const { return needs_; }

  // The rows of a pass.
  struct Rows {
    std::int32_t first_position = 0, n_rows = 0;
    bool of_all_layers = false;           // else of one at a time: each is cut before the next begins
    bool executor_keeps_queries = false;  // from the pass's first row on: they are not recorded here
  };
  // Makes room for a pass's rows, where every row or reference rows are needed.
  void begin_rows(const Rows& rows);
  // Frees that room.
  void end_rows();

  // Copies the last rows and the moments of another sequence with the same needs.
  void copy_state(const QueryEvidence& other);

  // Returns whether the executor has to keep the layer's queries.
  bool leaves_rows(int layer) const { return leaves_rows_ && this->layer(layer).row_floats > 0; }
  // Returns whether the moments of the layer's queries are needed.
  bool wants_moments(int layer) const { return needs_.query_moments && this->layer(layer).row_floats > 0; }

  // Records one rotated row q [n_head][key_dim] of a pass whose last row has the position end - 1. Does nothing in
  // layers that no method cuts.
  void record(int layer, std::int32_t position, std::int32_t end, const float* q);
  // Returns whether record() would record that row of the layer.
  bool wants_row(int layer, std::int32_t position, std::int32_t end) const;
  // Adds rows of one query head to its moments. q: rows before rotation, `row_stride` floats apart; the first has the
  // position first_position.
  void add_moments(int layer, int head, const float* q, std::int64_t row_stride, std::int32_t n_rows,
                   std::int32_t first_position);
  // Adds the sums of n rows of all query heads, and of their outer products, to the moments: as add_moments has them.
  void add_moment_sums(int layer, std::int64_t n, std::span<const double> sum, std::span<const double> outer);
  // Returns how many of n_rows rows from first_position on are left out of the moments.
  std::int32_t rows_before_moments(std::int32_t first_position, std::int32_t n_rows) const {
    return std::clamp(needs_.moments_skip - first_position, 0, n_rows);
  }
  // The number of reference rows; valid between begin_rows and end_rows.
  int n_reference_rows() const { return static_cast<int>(reference_positions_.size()); }
  // Returns where to write the log-sum-exps [n_head] of one row; null where they are not needed.
  float* log_sum_exp_row(int layer, std::int32_t position);

  // Fills the evidence fields of a view, with at most max_window_rows of the last rows; the pointers are valid until
  // the next call.
  void fill(LayerView& view, int max_window_rows);
  // Returns the reference rows before view.n_tokens, as if the prompt ended there.
  ReferenceQueries reference_queries(const LayerView& view) const;

  // Writes the lasting evidence of a layer: a count and the window's floats; a count and, as doubles, the number of
  // queries, their sums and their outer products.
  void write(std::ostream& out, int layer) const;
  // Returns the bytes that write() writes for all layers together, saturated at the largest std::uint64_t.
  static std::uint64_t written_bytes(const EvidenceNeeds& needs, const ModelSpec& spec);
  // Reads what evidence with the same needs has written. Returns false for anything else, of which a part may have been
  // read.
  bool read(std::istream& in, int layer);

 private:
  // Running sums over the queries of a layer.
  struct Moments {
    std::int64_t n = 0;
    std::vector<double> sum;    // [n_head][key_dim]
    std::vector<double> outer;  // [n_head][key_dim][key_dim]
  };
  // The sizes of a layer and where its rows begin; a layer that no method cuts has rows of no floats.
  struct Layer {
    std::size_t n_head, key_dim;
    std::size_t row_floats;    // n_head * key_dim
    std::size_t window_at;     // where its first row begins in window_
    std::size_t rows_before;   // floats of a row of all layers before
    std::size_t heads_before;  // query heads of all layers before
  };
  const Layer& layer(int l) const { return layers_[static_cast<std::size_t>(l)]; }
  std::size_t n_window_floats(const Layer& layer) const {
    return static_cast<std::size_t>(needs_.window_rows) * layer.row_floats;
  }
  // Returns the number of doubles that write() writes for the layer's moments.
  std::uint64_t moments_doubles(int layer) const;
  // Returns where a reference row of a layer begins in reference_.
  std::size_t reference_at(const Layer& layer, std::size_t row) const;
  // Returns the index of a row among those kept of every row of its layer; nullopt if it is not kept.
  std::optional<std::size_t> row_index(int layer, std::int32_t position) const;
  // Return where such a row begins in rows_ and in log_sum_exp_.
  std::size_t rows_at(const Layer& layer, std::size_t row) const;
  std::size_t sums_at(const Layer& layer, std::size_t row) const;

  EvidenceNeeds needs_;
  std::vector<Layer> layers_;
  std::vector<float> window_;       // of each layer [window_rows][n_head][key_dim]; position p in slot p % window_rows
  std::vector<Moments> moments_;    // [n_layer]
  std::int32_t first_row_ = 0;      // position of the first row of the two below
  std::int32_t n_rows_ = 0;         // rows of a layer in the two below
  bool leaves_rows_ = false;        // there are none in the first of the two
  bool all_layers_ = false;         // they hold all layers, one after the other; else one layer at a time
  std::vector<float> rows_;         // [n_rows][n_head][key_dim]
  std::vector<float> log_sum_exp_;  // [n_rows][n_head]
  std::vector<std::int32_t> reference_positions_;  // ascending
  std::vector<float> reference_;                   // [n_reference][n_head][key_dim], of one layer at a time or of all
  ReferenceQueries reference_queries_;             // of one layer, filled by fill()
  std::vector<float> window_rows_;                 // the window in the order of positions, filled by fill()
  std::vector<double> mean_;
  std::vector<double> covariance_;
};

}  // namespace winnow
