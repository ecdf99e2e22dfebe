// Statistics of a layer's entries, measured on the device that holds them, whose memory the processor cannot read.
// LayerEvidence asks for them, and computes all others from a copy of the rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/page_rows.h"
#include "kernels/statistics/window_statistics.h"
#include "winnow/layer_evidence.h"

namespace winnow {

inline constexpr double kTinyLength = 1e-30;  // a key of zeros has the cosine 0 with anything

enum class EntryNorm { kStoredKeyL2, kKeyL2, kValueL1, kValueL2 };  // kKeyL2: without LayerView::key_scales

// Query rows of all heads of a layer.
struct StatisticsRows {
  const float* q;  // [n_rows][n_head][key_dim], rotated; null: the rows that were kept, from first_row of the pass on
  int n_rows;
  bool sees_all;  // every row sees all entries; else they are the sequence's last tokens
  std::int32_t first_row = 0;
};

// Some entries of a head.
struct EntryRows {
  std::vector<float> keys;    // [n][key_dim]
  std::vector<float> values;  // [n][value_dim]
};

// The results of attention for rows of all heads.
struct RowAttention {
  std::vector<float> out;          // [n_rows][n_head][value_dim], or empty
  std::vector<float> log_sum_exp;  // [n_rows][n_head]
};

// Measures the entries of one layer. Not thread-safe, except host_heads() and rows().
class EntryStatistics {
 public:
  virtual ~EntryStatistics() = default;

  // Return the statistics of LayerEvidence with the same names; nullopt if they are not measured here.
  //   n_columns: [n_kv_head] first entries of each head
  virtual std::optional<WindowStatistics> window(const StatisticsRows& rows, unsigned columns,
                                                 std::span<const std::int32_t> n_columns) = 0;
  // Returns the sums of the squares of the rows' attention: [n_kv_head][n_group * n_columns].
  virtual std::optional<std::vector<std::vector<float>>> squares(const StatisticsRows& rows,
                                                                 std::span<const std::int32_t> n_columns) = 0;
  // Returns the attention weights exp(score - log_sum_exp) folded over the rows, log_sum_exp [n_rows][n_head]:
  // [n_kv_head][n_group * size of the head's range].
  virtual std::optional<std::vector<std::vector<float>>> fold(kernels::ColumnFold fold, const StatisticsRows& rows,
                                                              const float* log_sum_exp,
                                                              std::span<const kernels::EntryRange> ranges) = 0;
  // Returns the logs of expected exponentials of scores, from the moments of all query heads, [n_head][key_dim] and
  // [n_head][key_dim][key_dim]: [n_kv_head][n_group * n_entries].
  virtual std::vector<std::vector<double>> expected_scores(std::span<const double> mean,
                                                           std::span<const double> covariance) = 0;
  // Returns a norm of every entry: [n_kv_head][n_entries].
  virtual std::vector<std::vector<float>> norms(EntryNorm norm) = 0;
  // Returns the norms of the projected values, [n_kv_head][n_entries]; nullopt if the output projection cannot be read
  // here.
  virtual std::optional<std::vector<std::vector<float>>> projected_value_norms() = 0;

  // Returns LayerEvidence::mean_key_cosines().
  virtual std::vector<std::vector<float>> mean_key_cosines() = 0;
  // Returns v' M v for every value v and the matrices M of its query heads, [n_head][value_dim][value_dim]:
  // [n_kv_head][n_group * n_entries].
  virtual std::vector<std::vector<double>> value_forms(std::vector<float> matrices) = 0;
  // Returns the rows' attention to all entries, of a layer without a window; `out` only if it is wanted.
  virtual RowAttention attend(const StatisticsRows& rows, bool wants_out) = 0;
  // Returns the origins that the heads' keys would be coded relative to, [n_kv_head]: the means of all but the first
  // kPlainEntries. They are computed at the first call.
  virtual const std::vector<KeyOrigin>& origins() = 0;
  // Returns entries of a head, by ascending index, as the processor would load them.
  virtual EntryRows rows(int head, std::span<const std::int32_t> entries) = 0;

  // Returns LayerView::w_o, which is made at the first call.
  virtual const float* output_projection() = 0;
  // Return kept queries [n_rows][n_head][key_dim] in the processor's memory, and passes that refer to them. They are
  // copied at the first call.
  virtual const float* kept_queries(std::int32_t first_row, int n_rows) = 0;
  virtual std::span<const ReconstructionPass> copied_passes(std::span<const ReconstructionPass> passes) = 0;
  // Returns the same entries in the processor's memory: [n_kv_head]. They are copied at the first call.
  virtual std::span<const kernels::HeadEntries> host_heads() = 0;
};

// Returns a view with statistics as one without them, from copies of all rows and of the output projection.
LayerView with_copies(const LayerView& view);

}  // namespace winnow
