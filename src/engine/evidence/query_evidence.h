// What a sequence keeps of its queries in the layers that methods cut, for cuts now and later: the last rows, running
// moments, and, from the beginning of a prompt or turn to the cut that ends it, every row (h2o) or some spread over it
// (reference rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "model/layer_spec.h"
#include "winnow/layer_view.h"

namespace winnow {

// The reference rows of a layer, rotated for positions behind a prompt.
struct ReferenceQueries {
  int n_rows = 0;
  std::vector<float> q = {};  // [n_rows][n_head][key_dim]

  // The view points to them from here on; they must outlive it.
  void show_in(LayerView& view) const {
    if (n_rows == 0) return;
    view.reference_q = q.data();
    view.n_reference_rows = n_rows;
  }
};

// Not thread-safe, but different rows (record) and different heads (add_moments) may be written by different threads.
class QueryEvidence {
 public:
  static constexpr std::int32_t kMaxReferenceRows = 192;

  // Of these layers.
  QueryEvidence(const EvidenceNeeds& needs, const ModelSpec& spec, LayerRange range);

  const EvidenceNeeds& needs() const { return needs_; }

  // Before n_rows tokens from first_position on go through the layers: room for their rows where every row or reference
  // rows are asked for, of one layer that the others follow (each is judged before the next begins), or of all.
  void begin_rows(std::int32_t first_position, std::int32_t n_rows, bool all_layers);
  void end_rows();

  // Takes the last rows and the moments of another sequence with the same needs.
  void copy_state(const QueryEvidence& other);

  // Whether anybody wants the moments of the layer's queries.
  bool wants_moments(int layer) const { return needs_.query_moments && this->layer(layer).row_floats > 0; }

  // Nothing happens in layers that no method cuts. q: one row [n_head][key_dim], rotated, of a pass whose last row has
  // the position end - 1.
  void record(int layer, std::int32_t position, std::int32_t end, const float* q);
  // q: rows of one head, `row_stride` floats apart, before rotation. The first row has the position first_position.
  void add_moments(int layer, int head, const float* q, std::int64_t row_stride, std::int32_t n_rows,
                   std::int32_t first_position);
  // Between begin_rows and end_rows.
  int n_reference_rows() const { return static_cast<int>(reference_positions_.size()); }
  // [n_head] of one row, or null where nobody asks.
  float* log_sum_exp_row(int layer, std::int32_t position);

  // Fills the evidence fields of a view, with at most max_window_rows of the last rows; pointers live until the next
  // call.
  void fill(LayerView& view, int max_window_rows);
  // The rows before view.n_tokens, as if the prompt ended there.
  ReferenceQueries reference_queries(const LayerView& view) const;

  // What stays of a layer's queries, as bytes: a count and the window's numbers; a count and the number of queries, the
  // sums, the outer products (as doubles, all of them).
  void write(std::ostream& out, int layer) const;
  // How many bytes these are of all layers where the needs are known; the most there can be if they are absurdly many.
  static std::uint64_t written_bytes(const EvidenceNeeds& needs, const ModelSpec& spec);
  // Takes what evidence with the same needs wrote; false for anything else, of which a part may have been taken.
  bool read(std::istream& in, int layer);

 private:
  struct Moments {
    std::int64_t n = 0;
    std::vector<double> sum;    // [n_head][key_dim]
    std::vector<double> outer;  // [n_head][key_dim][key_dim]
  };
  // Where a layer's rows are; a layer that no method cuts has rows of no floats.
  struct Layer {
    std::size_t n_head, key_dim;
    std::size_t row_floats;    // n_head * key_dim
    std::size_t window_at;     // of its first row in window_
    std::size_t rows_before;   // floats of a row of all layers before
    std::size_t heads_before;  // query heads of all layers before
  };
  const Layer& layer(int l) const { return layers_[static_cast<std::size_t>(l)]; }
  std::size_t n_window_floats(const Layer& layer) const {
    return static_cast<std::size_t>(needs_.window_rows) * layer.row_floats;
  }
  // What is written of the layer's moments, in doubles.
  std::uint64_t moments_doubles(int layer) const;
  // A row that is kept for reference: where it begins in reference_.
  std::size_t reference_at(const Layer& layer, std::size_t row) const;
  // Index of a row among those of its layer that are kept for all rows; nothing for one that is not kept.
  std::optional<std::size_t> row_index(int layer, std::int32_t position) const;
  // Where such a row begins in rows_ and in log_sum_exp_.
  std::size_t rows_at(const Layer& layer, std::size_t row) const;
  std::size_t sums_at(const Layer& layer, std::size_t row) const;

  EvidenceNeeds needs_;
  std::vector<Layer> layers_;
  std::vector<float> window_;       // of each layer [window_rows][n_head][key_dim]; position p in slot p % window_rows
  std::vector<Moments> moments_;    // [n_layer]
  std::int32_t first_row_ = 0;      // position of the first row of the two below
  std::int32_t n_rows_ = 0;         // rows of a layer in the two below
  bool all_layers_ = false;         // they hold all layers, one after the other; else one in turn
  std::vector<float> rows_;         // [n_rows][n_head][key_dim]
  std::vector<float> log_sum_exp_;  // [n_rows][n_head]
  std::vector<std::int32_t> reference_positions_;  // ascending
  std::vector<float> reference_;                   // [n_reference][n_head][key_dim], of one layer in turn or of all
  ReferenceQueries reference_queries_;             // of one layer, for fill
  std::vector<float> window_rows_;                 // the window in order, for fill
  std::vector<double> mean_;
  std::vector<double> covariance_;
};

}  // namespace winnow
