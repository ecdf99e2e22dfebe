#include "engine/query_evidence.h"

#include <algorithm>
#include <istream>
#include <limits>
#include <ostream>
#include <span>

#include "kernels/query_moments.h"

namespace winnow {

QueryEvidence::QueryEvidence(const EvidenceNeeds& needs, const Hparams& hparams)
    : needs_(needs), n_layer_(hparams.n_layer), n_head_(hparams.n_head), head_dim_(hparams.head_dim) {
  window_.resize(static_cast<std::size_t>(n_layer_) * static_cast<std::size_t>(needs.window_rows) * row_floats());
  if (needs.query_moments) {
    moments_.resize(static_cast<std::size_t>(n_layer_));
    for (Moments& moments : moments_) {
      moments.sum.resize(row_floats());
      moments.outer.resize(row_floats() * static_cast<std::size_t>(head_dim_));
    }
  }
}

std::size_t QueryEvidence::row_floats() const { return static_cast<std::size_t>(n_head_ * head_dim_); }

void QueryEvidence::begin_rows(std::int32_t first_position, std::int32_t n_rows, bool all_layers) {
  if (!needs_.all_queries && !needs_.log_sum_exp) return;
  first_row_ = first_position;
  n_rows_ = n_rows;
  all_layers_ = all_layers;
  const std::size_t n = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(all_layers ? n_layer_ : 1);
  if (needs_.all_queries) rows_.resize(n * row_floats());
  if (needs_.log_sum_exp) log_sum_exp_.resize(n * static_cast<std::size_t>(n_head_));
}

void QueryEvidence::end_rows() {
  n_rows_ = 0;
  rows_ = {};
  log_sum_exp_ = {};
}

void QueryEvidence::copy_state(const QueryEvidence& other) {
  window_ = other.window_;
  moments_ = other.moments_;
}

std::optional<std::size_t> QueryEvidence::row_index(int layer, std::int32_t position) const {
  if (position < first_row_ || position >= first_row_ + n_rows_) return std::nullopt;
  return static_cast<std::size_t>(all_layers_ ? layer : 0) * static_cast<std::size_t>(n_rows_) +
         static_cast<std::size_t>(position - first_row_);
}

void QueryEvidence::record(int layer, std::int32_t position, std::int32_t end, const float* q) {
  // Threads record rows in any order: one that will not be in the window must not take the slot of one that will.
  if (end - position <= needs_.window_rows) {
    const auto rows = static_cast<std::size_t>(needs_.window_rows);
    const std::size_t slot = static_cast<std::size_t>(layer) * rows + static_cast<std::size_t>(position) % rows;
    std::copy_n(q, row_floats(), window_.data() + slot * row_floats());
  }
  if (const auto index = row_index(layer, position); index && needs_.all_queries) {
    std::copy_n(q, row_floats(), rows_.data() + *index * row_floats());
  }
}

void QueryEvidence::add_moments(int layer, int head, const float* q, std::int64_t row_stride, std::int32_t n_rows,
                                std::int32_t first_position) {
  Moments& moments = moments_[static_cast<std::size_t>(layer)];
  const auto d = static_cast<std::size_t>(head_dim_);
  const std::int32_t skipped = std::clamp(needs_.moments_skip - first_position, 0, n_rows);
  kernels::add_query_moments(q + skipped * row_stride, row_stride, n_rows - skipped, head_dim_,
                             std::span(moments.sum).subspan(static_cast<std::size_t>(head) * d, d),
                             std::span(moments.outer).subspan(static_cast<std::size_t>(head) * d * d, d * d));
  if (head == 0) moments.n += n_rows - skipped;
}

void QueryEvidence::write(std::ostream& out) const {
  const auto put = [&](const void* data, std::size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  const std::uint64_t n_window = window_.size();
  put(&n_window, sizeof(n_window));
  put(window_.data(), window_.size() * sizeof(float));
  std::uint64_t n_moments = 0;
  for (const Moments& moments : moments_) n_moments += 1 + moments.sum.size() + moments.outer.size();
  put(&n_moments, sizeof(n_moments));
  for (const Moments& moments : moments_) {
    const auto n = static_cast<double>(moments.n);
    put(&n, sizeof(n));
    put(moments.sum.data(), moments.sum.size() * sizeof(double));
    put(moments.outer.data(), moments.outer.size() * sizeof(double));
  }
}

std::uint64_t QueryEvidence::written_bytes(const EvidenceNeeds& needs, const Hparams& hparams) {
  const auto n_layer = static_cast<double>(hparams.n_layer);
  const double row = static_cast<double>(hparams.n_head) * hparams.head_dim;
  double bytes = 2 * sizeof(std::uint64_t) + n_layer * needs.window_rows * row * sizeof(float);
  if (needs.query_moments) bytes += n_layer * (1 + row + row * hparams.head_dim) * sizeof(double);
  return bytes < 0x1p53 ? static_cast<std::uint64_t>(bytes) : std::numeric_limits<std::uint64_t>::max();
}

bool QueryEvidence::read(std::istream& in) {
  const auto take = [&](auto* data, std::size_t n) {
    in.read(reinterpret_cast<char*>(data), static_cast<std::streamsize>(n * sizeof(*data)));
    return static_cast<bool>(in);
  };
  std::uint64_t n_window = 0, n_moments = 0, expected = 0;
  if (!take(&n_window, 1) || n_window != window_.size() || !take(window_.data(), window_.size())) return false;
  for (const Moments& moments : moments_) expected += 1 + moments.sum.size() + moments.outer.size();
  if (!take(&n_moments, 1) || n_moments != expected) return false;
  for (Moments& moments : moments_) {
    double n = 0;
    if (!take(&n, 1) || !(n >= 0 && n <= 0x1p53)) return false;
    moments.n = static_cast<std::int64_t>(n);
    if (!take(moments.sum.data(), moments.sum.size()) || !take(moments.outer.data(), moments.outer.size()))
      return false;
  }
  return true;
}

float* QueryEvidence::log_sum_exp_row(int layer, std::int32_t position) {
  const auto index = row_index(layer, position);
  if (!needs_.log_sum_exp || !index) return nullptr;
  return log_sum_exp_.data() + *index * static_cast<std::size_t>(n_head_);
}

void QueryEvidence::fill(LayerView& view, int max_window_rows) {
  const int rows = std::min({needs_.window_rows, view.n_tokens, max_window_rows});
  if (rows > 0) {
    window_rows_.resize(static_cast<std::size_t>(rows) * row_floats());
    for (int r = 0; r < rows; ++r) {
      const std::int32_t position = view.n_tokens - rows + r;
      const auto slot = static_cast<std::size_t>(view.layer * needs_.window_rows + position % needs_.window_rows);
      std::copy_n(window_.data() + slot * row_floats(), row_floats(),
                  window_rows_.data() + static_cast<std::size_t>(r) * row_floats());
    }
    view.window_q = window_rows_.data();
    view.n_window_rows = rows;
  }
  if (const auto first = row_index(view.layer, first_row_)) {
    view.n_query_rows = n_rows_;
    if (needs_.all_queries) view.all_q = rows_.data() + *first * row_floats();
    if (needs_.log_sum_exp) view.log_sum_exp = log_sum_exp_.data() + *first * static_cast<std::size_t>(n_head_);
  }
  if (needs_.query_moments) {
    const Moments& moments = moments_[static_cast<std::size_t>(view.layer)];
    const auto d = static_cast<std::size_t>(head_dim_);
    const double scale = moments.n > 0 ? 1.0 / static_cast<double>(moments.n) : 0.0;
    mean_.resize(moments.sum.size());
    covariance_.resize(moments.outer.size());
    for (std::size_t i = 0; i < mean_.size(); ++i) mean_[i] = moments.sum[i] * scale;
    for (std::size_t h = 0; h < static_cast<std::size_t>(n_head_); ++h) {
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
