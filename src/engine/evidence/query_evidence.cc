#include "engine/evidence/query_evidence.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <ostream>
#include <span>

#include "kernels/statistics/query_moments.h"

namespace winnow {
namespace {

// The reference rows of a prompt or turn: kSpreadRows spread over it, except its first ones, whose attention is unlike
// any other's, and kLastReferenceRows of its last. More rows gain little: 384 in place of 192 gave .92 of the KL.
constexpr std::int32_t kSpreadRows = 144;
static_assert(kSpreadRows + kLastReferenceRows == QueryEvidence::kMaxReferenceRows);
constexpr std::int32_t kSkippedRows = 8;
// Reference rows are rotated for so many positions after the prompt, in turn.
constexpr std::int32_t kReferencePositions = 64;

// Returns the positions of the reference rows of n_rows tokens from first_position on, ascending.
std::vector<std::int32_t> choose_reference_rows(std::int32_t first_position, std::int32_t n_rows) {
  std::vector<std::int32_t> chosen;
  const std::int32_t skipped = first_position == 0 ? std::min(kSkippedRows, n_rows - 1) : 0;
  const std::int64_t last = n_rows - 1 - skipped;  // counted from the first that may be chosen
  const std::int64_t n_spread = std::min<std::int64_t>(kSpreadRows, last + 1);
  for (std::int64_t i = 0; i < n_spread; ++i) {
    const std::int64_t at = n_spread > 1 ? i * last / (n_spread - 1) : last;
    chosen.push_back(first_position + skipped + static_cast<std::int32_t>(at));
  }
  for (std::int32_t i = std::max(skipped, n_rows - kLastReferenceRows); i < n_rows; ++i)
    chosen.push_back(first_position + i);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace

void rotate_further(float* row, std::size_t n_head, std::size_t key_dim, const RotationView& rotation,
                    std::int32_t positions) {
  const int half = rotation.n_dims / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = static_cast<double>(rotation.frequency[i]) * positions;
    const auto c = static_cast<float>(std::cos(angle));
    const auto s = static_cast<float>(std::sin(angle));
    const int first = rotation.interleaved ? 2 * i : i;
    const int second = rotation.interleaved ? 2 * i + 1 : i + half;
    for (std::size_t h = 0; h < n_head; ++h) {
      float* head = row + h * key_dim;
      const float a = head[first], b = head[second];
      head[first] = a * c - b * s;
      head[second] = a * s + b * c;
    }
  }
}

QueryEvidence::QueryEvidence(const EvidenceNeeds& needs, const ModelSpec& spec, LayerRange range) : needs_(needs) {
  std::size_t window_floats = 0, row_floats = 0, n_heads = 0;
  for (int l = 0; l < spec.n_layer(); ++l) {
    const LayerSpec& layer = spec.layer(l);
    const bool is_cut = layer.kind == LayerKind::kFullAttention && l >= range.first && l < range.last;
    layers_.push_back({.n_head = is_cut ? static_cast<std::size_t>(layer.n_head) : 0,
                       .key_dim = static_cast<std::size_t>(layer.key_dim),
                       .row_floats = is_cut ? static_cast<std::size_t>(layer.q_size()) : 0,
                       .window_at = window_floats,
                       .rows_before = row_floats,
                       .heads_before = n_heads});
    window_floats += static_cast<std::size_t>(needs.window_rows) * layers_.back().row_floats;
    row_floats += layers_.back().row_floats;
    n_heads += layers_.back().n_head;
  }
  window_.resize(window_floats);
  if (needs.query_moments) {
    moments_.resize(layers_.size());
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      moments_[l].sum.resize(layers_[l].row_floats);
      moments_[l].outer.resize(layers_[l].row_floats * layers_[l].key_dim);
    }
  }
}

void QueryEvidence::begin_rows(const Rows& rows) {
  if (!needs_.all_queries && !needs_.log_sum_exp && !needs_.reference_rows) return;
  first_row_ = rows.first_position;
  n_rows_ = rows.n_rows;
  all_layers_ = rows.of_all_layers;
  std::size_t floats = 0, heads = 0;  // of one row
  for (const Layer& layer : layers_) {
    floats = all_layers_ ? floats + layer.row_floats : std::max(floats, layer.row_floats);
    heads = all_layers_ ? heads + layer.n_head : std::max(heads, layer.n_head);
  }
  const auto n = static_cast<std::size_t>(rows.n_rows);
  leaves_rows_ = needs_.all_queries && rows.executor_keeps_queries;
  if (needs_.all_queries && !leaves_rows_) rows_.resize(n * floats);
  if (needs_.log_sum_exp) log_sum_exp_.resize(n * heads);
  if (needs_.reference_rows) {
    reference_positions_ = choose_reference_rows(rows.first_position, rows.n_rows);
    reference_.resize(reference_positions_.size() * floats);
  }
}

void QueryEvidence::end_rows() {
  n_rows_ = 0;
  leaves_rows_ = false;
  rows_ = {};
  log_sum_exp_ = {};
  reference_positions_ = {};
  reference_ = {};
  reference_queries_ = {};
}

void QueryEvidence::copy_state(const QueryEvidence& other) {
  window_ = other.window_;
  moments_ = other.moments_;
}

std::optional<std::size_t> QueryEvidence::row_index(int layer, std::int32_t position) const {
  if (this->layer(layer).row_floats == 0) return std::nullopt;
  if (position < first_row_ || position >= first_row_ + n_rows_) return std::nullopt;
  return static_cast<std::size_t>(position - first_row_);
}

std::size_t QueryEvidence::rows_at(const Layer& layer, std::size_t row) const {
  return (all_layers_ ? layer.rows_before * static_cast<std::size_t>(n_rows_) : 0) + row * layer.row_floats;
}

std::size_t QueryEvidence::reference_at(const Layer& layer, std::size_t row) const {
  return (all_layers_ ? layer.rows_before * reference_positions_.size() : 0) + row * layer.row_floats;
}

std::size_t QueryEvidence::sums_at(const Layer& layer, std::size_t row) const {
  return (all_layers_ ? layer.heads_before * static_cast<std::size_t>(n_rows_) : 0) + row * layer.n_head;
}

void QueryEvidence::record(int layer, std::int32_t position, std::int32_t end, const float* q) {
  const Layer& sizes = this->layer(layer);
  // Threads record rows in any order, so a row that will not be in the window must not take the slot of one that will.
  if (end - position <= needs_.window_rows) {
    const std::size_t slot = static_cast<std::size_t>(position) % static_cast<std::size_t>(needs_.window_rows);
    std::copy_n(q, sizes.row_floats, window_.data() + sizes.window_at + slot * sizes.row_floats);
  }
  if (const auto index = row_index(layer, position); index && needs_.all_queries && !leaves_rows_) {
    std::copy_n(q, sizes.row_floats, rows_.data() + rows_at(sizes, *index));
  }
  const auto at = std::lower_bound(reference_positions_.begin(), reference_positions_.end(), position);
  if (at != reference_positions_.end() && *at == position) {
    const auto row = static_cast<std::size_t>(at - reference_positions_.begin());
    std::copy_n(q, sizes.row_floats, reference_.data() + reference_at(sizes, row));
  }
}

bool QueryEvidence::wants_row(int layer, std::int32_t position, std::int32_t end) const {
  if (this->layer(layer).row_floats == 0) return false;
  if (end - position <= needs_.window_rows) return true;
  if (needs_.all_queries && !leaves_rows_ && row_index(layer, position)) return true;
  return std::binary_search(reference_positions_.begin(), reference_positions_.end(), position);
}

void QueryEvidence::add_moments(int layer, int head, const float* q, std::int64_t row_stride, std::int32_t n_rows,
                                std::int32_t first_position) {
  Moments& moments = moments_[static_cast<std::size_t>(layer)];
  const std::size_t d = this->layer(layer).key_dim;
  const std::int32_t skipped = rows_before_moments(first_position, n_rows);
  kernels::add_query_moments(q + skipped * row_stride, row_stride, n_rows - skipped, static_cast<int>(d),
                             std::span(moments.sum).subspan(static_cast<std::size_t>(head) * d, d),
                             std::span(moments.outer).subspan(static_cast<std::size_t>(head) * d * d, d * d));
  if (head == 0) moments.n += n_rows - skipped;
}

void QueryEvidence::add_moment_sums(int layer, std::int64_t n, std::span<const double> sum,
                                    std::span<const double> outer) {
  Moments& moments = moments_[static_cast<std::size_t>(layer)];
  moments.n += n;
  for (std::size_t i = 0; i < moments.sum.size(); ++i) moments.sum[i] += sum[i];
  for (std::size_t i = 0; i < moments.outer.size(); ++i) moments.outer[i] += outer[i];
}

std::uint64_t QueryEvidence::moments_doubles(int layer) const {
  if (!wants_moments(layer)) return 0;
  const Moments& moments = moments_[static_cast<std::size_t>(layer)];
  return 1 + moments.sum.size() + moments.outer.size();
}

void QueryEvidence::write(std::ostream& out, int layer) const {
  const auto put = [&](const auto* data, std::size_t n) {
    out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(n * sizeof(*data)));
  };
  const std::uint64_t n_window = n_window_floats(this->layer(layer)), n_moments = moments_doubles(layer);
  put(&n_window, 1);
  put(window_.data() + this->layer(layer).window_at, n_window);
  put(&n_moments, 1);
  if (n_moments == 0) return;
  const Moments& moments = moments_[static_cast<std::size_t>(layer)];
  const auto n = static_cast<double>(moments.n);
  put(&n, 1);
  put(moments.sum.data(), moments.sum.size());
  put(moments.outer.data(), moments.outer.size());
}

std::uint64_t QueryEvidence::written_bytes(const EvidenceNeeds& needs, const ModelSpec& spec) {
  double bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    const double row = layer.kind == LayerKind::kFullAttention ? layer.q_size() : 0;
    bytes += 2 * sizeof(std::uint64_t) + row * needs.window_rows * sizeof(float);
    if (needs.query_moments && row > 0) bytes += (1 + row + row * layer.key_dim) * sizeof(double);
  }
  return bytes < 0x1p53 ? static_cast<std::uint64_t>(bytes) : std::numeric_limits<std::uint64_t>::max();
}

bool QueryEvidence::read(std::istream& in, int layer) {
  const auto take = [&](auto* data, std::size_t n) {
    in.read(reinterpret_cast<char*>(data), static_cast<std::streamsize>(n * sizeof(*data)));
    return static_cast<bool>(in);
  };
  std::uint64_t n_window = 0, n_moments = 0;
  if (!take(&n_window, 1) || n_window != n_window_floats(this->layer(layer))) return false;
  if (!take(window_.data() + this->layer(layer).window_at, n_window)) return false;
  if (!take(&n_moments, 1) || n_moments != moments_doubles(layer)) return false;
  if (n_moments == 0) return true;
  Moments& moments = moments_[static_cast<std::size_t>(layer)];
  double n = 0;
  if (!take(&n, 1) || !(n >= 0 && n <= 0x1p53)) return false;
  moments.n = static_cast<std::int64_t>(n);
  return take(moments.sum.data(), moments.sum.size()) && take(moments.outer.data(), moments.outer.size());
}

float* QueryEvidence::log_sum_exp_row(int layer, std::int32_t position) {
  const auto index = row_index(layer, position);
  if (!needs_.log_sum_exp || !index) return nullptr;
  return log_sum_exp_.data() + sums_at(this->layer(layer), *index);
}

ReferenceQueries QueryEvidence::reference_queries(const LayerView& view) const {
  const Layer& sizes = layer(view.layer);
  const auto n = static_cast<std::size_t>(
      std::lower_bound(reference_positions_.begin(), reference_positions_.end(), view.n_tokens) -
      reference_positions_.begin());
  if (n == 0 || sizes.row_floats == 0) return {};
  ReferenceQueries queries{.n_rows = static_cast<int>(n),
                           .q = {reference_.begin() + static_cast<std::ptrdiff_t>(reference_at(sizes, 0)),
                                 reference_.begin() + static_cast<std::ptrdiff_t>(reference_at(sizes, n))}};
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t position = view.n_tokens + static_cast<std::int32_t>(i) % kReferencePositions;
    rotate_further(queries.q.data() + i * sizes.row_floats, sizes.n_head, sizes.key_dim, view.rotation,
                   position - reference_positions_[i]);
  }
  return queries;
}

void QueryEvidence::fill(LayerView& view, int max_window_rows) {
  const Layer& sizes = layer(view.layer);
  const std::size_t row_floats = sizes.row_floats;
  const int rows = row_floats == 0 ? 0 : std::min({needs_.window_rows, view.n_tokens, max_window_rows});
  if (rows > 0) {
    window_rows_.resize(static_cast<std::size_t>(rows) * row_floats);
    for (int r = 0; r < rows; ++r) {
      const std::int32_t position = view.n_tokens - rows + r;
      const auto slot = static_cast<std::size_t>(position % needs_.window_rows);
      std::copy_n(window_.data() + sizes.window_at + slot * row_floats, row_floats,
                  window_rows_.data() + static_cast<std::size_t>(r) * row_floats);
    }
    view.window_q = window_rows_.data();
    view.n_window_rows = rows;
  }
  if (const auto first = row_index(view.layer, first_row_)) {
    view.n_query_rows = n_rows_;
    view.has_all_queries = needs_.all_queries;
    if (needs_.all_queries && !leaves_rows_) view.all_q = rows_.data() + rows_at(sizes, *first);
    if (needs_.log_sum_exp) view.log_sum_exp = log_sum_exp_.data() + sums_at(sizes, *first);
  }
  if (needs_.reference_rows) {
    reference_queries_ = {};  // frees its memory first
    reference_queries_ = reference_queries(view);
    reference_queries_.show_in(view);
  }
  if (needs_.query_moments) {
    const Moments& moments = moments_[static_cast<std::size_t>(view.layer)];
    const std::size_t d = sizes.key_dim;
    const double scale = moments.n > 0 ? 1.0 / static_cast<double>(moments.n) : 0.0;
    mean_.resize(moments.sum.size());
    covariance_.resize(moments.outer.size());
    for (std::size_t i = 0; i < mean_.size(); ++i) mean_[i] = moments.sum[i] * scale;
    for (std::size_t h = 0; h < sizes.n_head; ++h) {
      const double* mean = mean_.data() + h * d;
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t j = 0; j < d; ++j) {
          const std::size_t at = (h * d + i) * d + j;
          covariance_[at] = moments.outer[at] * scale - mean[i] * mean[j];
        }
      }
    }
    view.query_mean = mean_.data();
    view.query_covariance = covariance_.data();
  }
}

}  // namespace winnow
