#include "winnow/layer_evidence.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/aligned_bytes.h"
#include "eviction/evidence/column_folds.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/head_parts.h"
#include "eviction/evidence/own_keys.h"
#include "eviction/evidence/pooling.h"
#include "eviction/evidence/query_rows.h"
#include "eviction/evidence/shared_costs.h"
#include "kernels/attention/softmax_state.h"
#include "kernels/entries/rows.h"
#include "kernels/statistics/projected_norms.h"
#include "kernels/statistics/query_moments.h"
#include "kernels/statistics/window_statistics.h"
#include "winnow/error.h"

namespace winnow {

namespace {

// A statistic, and its cost for those that share it.
template <typename Value>
struct Shared {
  std::optional<Value> value;
  SharedCosts::Item cost;
};

using Columns = std::vector<std::vector<float>>;
using RowsOf = std::function<kernels::QueryRows(int head)>;

// Measures each of a head's entries: [n_entries].
using MeasureHead = std::function<void(const LayerView& view, int head, std::span<float> out)>;

MeasureHead of_stored_rows(void (*measure)(const kernels::AttentionShape&, const kernels::HeadEntries&,
                                           std::span<float>)) {
  return [measure](const LayerView& view, int h, std::span<float> out) {
    measure(view.shape, view.heads[static_cast<std::size_t>(h)], out);
  };
}

// Returns the head's of LayerView::key_scales, or null.
const float* head_scales(const LayerView& view, int head) {
  return view.key_scales != nullptr ? view.key_scales + std::ptrdiff_t{head} * view.shape.key_dim : nullptr;
}

// Returns zeros for each stored entry: [n_kv_head][n_entries].
Columns entry_columns(const LayerEvidence& evidence) {
  Columns columns;
  for (int h = 0; h < evidence.n_kv_head(); ++h) columns.emplace_back(static_cast<std::size_t>(evidence.n_entries(h)));
  return columns;
}

// Reads rows [first, last) as float32.
void read_rows(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, kernels::RowKind kind,
               std::int32_t first, std::int32_t last, float* out) {
  const int dim = kind == kernels::RowKind::kKey ? shape.key_dim : shape.value_dim;
  std::int32_t begin = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    const std::int32_t from = std::max(first - begin, 0), to = std::min(last - begin, run.n_entries);
    for (std::int32_t r = from; r < to; ++r, out += dim) {
      kernels::load_entry(shape, run, kind, r, out);
    }
    begin += run.n_entries;
  }
}

// The entries of a part of a head (head_parts.h).
constexpr std::int32_t kPart = 1024;

// Returns the rows' sums over all of a head's entries, without sink logits: [n_kv_head][n_group * n_rows].
std::vector<std::vector<kernels::RowSum>> row_sums(const LayerEvidence& evidence, int n_rows, const RowsOf& rows_of) {
  const LayerView& view = evidence.host_view();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto n_queries = at(evidence.n_group()) * at(n_rows);
  const std::vector<HeadPart> parts = cut_heads(evidence, kPart, [&](int h) { return evidence.n_entries(h); });
  std::vector<kernels::RowSum> part_sums(parts.size() * n_queries);
  const std::size_t scratch_bytes = kernels::window_statistics_scratch_bytes(view.shape, n_rows);
  evidence.parallel(static_cast<int>(parts.size()), [&](int i) {
    const HeadPart& part = parts[at(i)];
    AlignedBytes scratch(scratch_bytes);
    kernels::window_row_sums(view.shape.of_head(part.head), view.heads[at(part.head)], rows_of(part.head),
                             {part.first, part.last}, std::span(part_sums).subspan(at(i) * n_queries, n_queries),
                             scratch.span());
  });
  std::vector<std::vector<kernels::RowSum>> sums(at(evidence.n_kv_head()), std::vector<kernels::RowSum>(n_queries));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    kernels::merge_row_sums(std::span(part_sums).subspan(i * n_queries, n_queries), sums[at(parts[i].head)]);
  }
  return sums;
}

// Returns the log-sum-exps of rows, sink logits included; -inf if a row sees no entry: [n_rows][n_head].
std::vector<float> log_sum_exps(const LayerEvidence& evidence, int n_rows, const RowsOf& rows_of) {
  const LayerView& view = evidence.host_view();
  const std::vector<std::vector<kernels::RowSum>> sums = row_sums(evidence, n_rows, rows_of);
  std::vector<float> result;
  for (int r = 0; r < n_rows; ++r) {
    for (int head = 0; head < view.n_head; ++head) {
      const int kv_head = head / view.shape.n_group, g = head % view.shape.n_group;
      const kernels::RowSum& sum = sums[static_cast<std::size_t>(kv_head)][static_cast<std::size_t>(g * n_rows + r)];
      const float* sinks = view.shape.of_head(kv_head).spec.sink_logits;
      kernels::SoftmaxState state{.max = sum.high * static_cast<float>(std::log(2.0)),
                                  .sum = static_cast<float>(sum.weight)};
      if (sinks != nullptr) kernels::merge(state, kernels::SoftmaxState::of(sinks[g]));
      result.push_back(state.log_sum_exp());
    }
  }
  return result;
}

// Returns the expected scores of a part of a head's entries from the moments of its group: [n_group][last - first].
std::vector<double> expected_scores_of(const LayerView& view, const HeadPart& part, std::span<const double> mean,
                                       std::span<const double> covariance) {
  std::vector<kernels::EntryRun> runs;
  const kernels::HeadEntries entries =
      slice_entries(view.heads[static_cast<std::size_t>(part.head)], view.shape, part.first, part.last, runs);
  std::vector<double> scores(static_cast<std::size_t>(view.shape.n_group) *
                             static_cast<std::size_t>(entries.n_entries));
  kernels::expected_scores(view.shape, entries, entries.n_entries, mean, covariance, scores);
  return scores;
}

// Returns the statistics of the prefix columns over the rows that rows_of(head) gives.
WindowStatistics make_statistics(const LayerEvidence& evidence, int n_rows, unsigned columns, const RowsOf& rows_of) {
  const LayerView& view = evidence.host_view();
  const int n_kv_head = evidence.n_kv_head(), n_group = evidence.n_group();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  WindowStatistics result;
  result.n_rows = n_rows;
  const auto allocate = [&](unsigned bit, std::vector<std::vector<float>>& out) {
    if ((columns & bit) == 0) return;
    for (int h = 0; h < n_kv_head; ++h) out.emplace_back(at(n_group) * at(evidence.n_prefix(h)));
  };
  allocate(kWindowMean, result.mean);
  allocate(kWindowM2, result.m2);
  allocate(kWindowMax, result.max);
  allocate(kWindowLast, result.last);
  if ((columns & kWindowEntropy) != 0) result.entropy.assign(at(n_kv_head), std::vector<double>(at(n_group)));

  const std::vector<std::vector<kernels::RowSum>> sums = row_sums(evidence, n_rows, rows_of);
  const std::size_t scratch_bytes = kernels::window_statistics_scratch_bytes(view.shape, n_rows);
  const std::vector<HeadPart> parts = cut_heads(evidence, kPart, [&](int h) { return evidence.n_prefix(h); });
  const std::size_t n_entropies = result.entropy.empty() ? 0 : at(n_group);
  std::vector<double> entropies(parts.size() * n_entropies);
  evidence.parallel(static_cast<int>(parts.size()), [&](int i) {
    const HeadPart& part = parts[at(i)];
    AlignedBytes scratch(scratch_bytes);
    const auto column = [&](auto& of) { return of.empty() ? nullptr : of[at(part.head)].data(); };
    kernels::window_columns(view.shape.of_head(part.head), view.heads[at(part.head)], rows_of(part.head),
                            sums[at(part.head)], {part.first, part.last},
                            {.n_columns = evidence.n_prefix(part.head),
                             .mean = column(result.mean),
                             .m2 = column(result.m2),
                             .max = column(result.max),
                             .last = column(result.last),
                             .entropy = n_entropies == 0 ? nullptr : entropies.data() + at(i) * n_entropies},
                            scratch.span());
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t g = 0; g < n_entropies; ++g) {
      result.entropy[at(parts[i].head)][g] += entropies[i * n_entropies + g];
    }
  }
  return result;
}

// Returns the sums of the squares of the attention of the last n_rows reference rows on the prefix:
// [n_kv_head][n_group * n_prefix].
Columns reference_squares(const LayerEvidence& evidence, int n_rows) {
  const LayerView& layer = evidence.layer();
  const std::ptrdiff_t first_head = std::ptrdiff_t{layer.n_reference_rows - n_rows} * layer.n_head;
  const StatisticsRows rows = {
      .q = layer.reference_q + first_head * layer.shape.key_dim, .n_rows = n_rows, .sees_all = true};
  if (layer.statistics != nullptr) {
    std::vector<std::int32_t> n_columns;
    for (int h = 0; h < evidence.n_kv_head(); ++h) n_columns.push_back(evidence.n_prefix(h));
    if (auto squares = layer.statistics->squares(rows, n_columns)) return *std::move(squares);
  }
  std::vector<float> sums;
  const float* log_sum_exp = layer.reference_log_sum_exp;
  if (log_sum_exp == nullptr) {
    sums = log_sum_exps(evidence, n_rows, [&](int h) { return rows_of_head(layer, rows, h); });
    log_sum_exp = sums.data();
  } else {
    log_sum_exp += first_head;
  }
  return fold_columns(evidence, kernels::ColumnFold::kSquares, rows, log_sum_exp, prefix_ranges(evidence));
}

// Refuses a reading of evidence that no part has asked for.
[[noreturn]] void refuse_unneeded(const std::string& what, const std::string& need) {
  throw Error(ErrorCode::kInvalidArgument,
              "a part of the method read " + what + ", which were not saved: its needs() must ask for " + need);
}

void require_reference_rows(const LayerView& view) {
  if (view.n_reference_rows > 0 && view.reference_q != nullptr) return;
  refuse_unneeded("reference rows", "reference_rows");
}

}  // namespace

struct LayerEvidence::State {
  // Returns the value, which `make` makes at the first call.
  template <typename Value>
  const Value& once(Shared<Value>& shared, const std::function<Value()>& make) {
    const auto work = [&] {
      if (!shared.value) shared.value = make();
    };
    if (costs == nullptr) {
      work();
    } else {
      costs->use(shared.cost, work);
    }
    return *shared.value;
  }

  // Returns a number for each of the heads' entries, which `measure` computes of a head's at the first call, or
  // `on_device` of the entries' EntryStatistics.
  const Columns& of_entries(const LayerEvidence& evidence, Shared<Columns>& shared,
                            Columns (*on_device)(EntryStatistics&), const MeasureHead& measure) {
    return once<Columns>(shared, [&] {
      if (EntryStatistics* statistics = evidence.layer().statistics) return on_device(*statistics);
      Columns columns_of = entry_columns(evidence);
      evidence.for_each_head([&](int h) { measure(evidence.layer(), h, columns_of[at(h)]); });
      return columns_of;
    });
  }

  unsigned columns;
  SharedCosts* costs;
  std::once_flag copies = {};
  std::optional<LayerView> copied = {};
  std::map<int, Shared<WindowStatistics>> windows = {};  // by number of rows
  Shared<Columns> reference_rms = {}, stored_key_l2 = {}, key_l2 = {}, key_cosines = {}, value_l1 = {}, value_l2 = {},
                  projected_norms = {};
};

LayerEvidence::LayerEvidence(const LayerView& view, const EvictionOptions& options, unsigned columns,
                             const ParallelFor& parallel_for, SharedCosts* costs)
    : view_(view), parallel_for_(parallel_for), state_(new State{.columns = columns, .costs = costs}) {
  for (const kernels::HeadEntries& entries : view.heads) {
    n_prefix_.push_back(count_below(entries, view.n_tokens - options.window));
    n_sinks_.push_back(std::min(count_below(entries, options.sinks), n_prefix_.back()));
  }
}

LayerEvidence::~LayerEvidence() = default;

std::int32_t LayerEvidence::n_before(int head, std::int32_t position) const {
  return count_below(view_.heads[at(head)], position);
}

const LayerView& LayerEvidence::copied_view() const {
  std::call_once(state_->copies, [&] { state_->copied = with_copies(view_); });
  return *state_->copied;
}

void LayerEvidence::read_keys(int head, std::int32_t first, std::int32_t last, float* out) const {
  read_rows(view_.shape, host_view().heads[at(head)], kernels::RowKind::kKey, first, last, out);
}

void LayerEvidence::read_values(int head, std::int32_t first, std::int32_t last, float* out) const {
  read_rows(view_.shape, host_view().heads[at(head)], kernels::RowKind::kValue, first, last, out);
}

std::vector<std::int32_t> LayerEvidence::positions(int head) const {
  std::vector<std::int32_t> positions;
  positions.reserve(at(n_entries(head)));
  for (const kernels::EntryRun& run : view_.heads[at(head)].runs) {
    run.positions.append_to(positions, run.n_entries);
  }
  return positions;
}

const WindowStatistics& LayerEvidence::window(int n_rows) {
  n_rows = std::min({n_rows, view_.n_window_rows, static_cast<int>(view_.n_tokens)});
  n_rows = stored_rows(view_, n_rows);
  if (n_rows < 1 || view_.window_q == nullptr) {
    refuse_unneeded("the window's rows", "window_rows");
  }
  return state_->once<WindowStatistics>(state_->windows[n_rows], [&] {
    const float* q = view_.window_q + std::ptrdiff_t{view_.n_window_rows - n_rows} * view_.n_head * view_.shape.key_dim;
    check_finite(q, n_rows);
    if (view_.statistics != nullptr) {
      const StatisticsRows rows = {.q = q, .n_rows = n_rows, .sees_all = false};
      if (auto statistics = view_.statistics->window(rows, state_->columns, n_prefix_)) return *std::move(statistics);
    }
    return make_statistics(*this, n_rows, state_->columns, [&](int h) { return group_rows(view_, q, n_rows, h); });
  });
}

const std::vector<std::vector<float>>& LayerEvidence::reference_rms() {
  require_reference_rows(view_);
  return state_->once<Columns>(state_->reference_rms, [&] {
    check_finite(view_.reference_q, view_.n_reference_rows);
    const Columns squares = reference_squares(*this, view_.n_reference_rows);
    Columns rms;
    for (int h = 0; h < n_kv_head(); ++h) {
      rms.push_back(group_only(squares[at(h)], n_group(), GroupReduction::kMean));
      for (float& square : rms.back()) square = std::sqrt(square / static_cast<float>(view_.n_reference_rows));
    }
    return rms;
  });
}

std::vector<std::vector<float>> LayerEvidence::last_rows_rms(int n_rows) {
  require_reference_rows(view_);
  check_finite(view_.reference_q, view_.n_reference_rows);
  n_rows = std::min({n_rows, kLastReferenceRows, view_.n_reference_rows});
  Columns rms = reference_squares(*this, n_rows);
  for (std::vector<float>& head : rms) {
    for (float& square : head) square = std::sqrt(square / static_cast<float>(n_rows));
  }
  return rms;
}

void LayerEvidence::check_finite(const float* q, int n_rows) {
  const auto refuse = [&](const char* what, int h) {
    throw Error(ErrorCode::kInvalidArgument, std::string("the ") + what + " of layer " + std::to_string(view_.layer) +
                                                 ", KV head " + std::to_string(h) +
                                                 " hold a number that is not finite: the model is broken there");
  };
  const std::ptrdiff_t per_group = std::ptrdiff_t{n_group()} * view_.shape.key_dim;
  for (std::ptrdiff_t r = 0; q != nullptr && r < n_rows; ++r) {
    for (int h = 0; h < n_kv_head(); ++h) {
      const float* first = q + (r * n_kv_head() + h) * per_group;
      if (!std::all_of(first, first + per_group, [](float x) { return std::isfinite(x); })) refuse("queries", h);
    }
  }
  const Columns& norms = stored_key_norms();
  for (int h = 0; h < n_kv_head(); ++h) {
    if (!std::all_of(norms[at(h)].begin(), norms[at(h)].end(), [](float x) { return std::isfinite(x); })) {
      refuse("keys", h);
    }
  }
}

const std::vector<std::vector<float>>& LayerEvidence::key_l2_norms() {
  if (view_.key_scales == nullptr) return stored_key_norms();
  return state_->of_entries(
      *this, state_->key_l2, [](EntryStatistics& s) { return s.norms(EntryNorm::kKeyL2); },
      [](const LayerView& view, int h, std::span<float> out) {
        own_key_norms(view.shape, view.heads[at(h)], head_scales(view, h), out);
      });
}

const std::vector<std::vector<float>>& LayerEvidence::stored_key_norms() {
  return state_->of_entries(
      *this, state_->stored_key_l2, [](EntryStatistics& s) { return s.norms(EntryNorm::kStoredKeyL2); },
      of_stored_rows(kernels::key_l2_norms));
}

const std::vector<std::vector<float>>& LayerEvidence::value_l1_norms() {
  return state_->of_entries(
      *this, state_->value_l1, [](EntryStatistics& s) { return s.norms(EntryNorm::kValueL1); },
      of_stored_rows(kernels::value_l1_norms));
}

const std::vector<std::vector<float>>& LayerEvidence::value_l2_norms() {
  return state_->of_entries(
      *this, state_->value_l2, [](EntryStatistics& s) { return s.norms(EntryNorm::kValueL2); },
      of_stored_rows(kernels::value_l2_norms));
}

const std::vector<std::vector<float>>& LayerEvidence::mean_key_cosines() {
  return state_->of_entries(
      *this, state_->key_cosines, [](EntryStatistics& s) { return s.mean_key_cosines(); },
      [](const LayerView& view, int h, std::span<float> out) {
        cosines_to_mean_key(view.shape, view.heads[at(h)], head_scales(view, h), out);
      });
}

std::vector<double> LayerEvidence::expected_scores(int head, std::span<const double> mean,
                                                   std::span<const double> covariance) const {
  return expected_scores_of(host_view(), {head, 0, n_entries(head)}, mean, covariance);
}

std::vector<std::vector<double>> LayerEvidence::expected_scores(std::span<const double> mean,
                                                                std::span<const double> covariance) const {
  if (view_.statistics != nullptr) return view_.statistics->expected_scores(mean, covariance);
  const LayerView& view = host_view();
  const std::size_t n_mean = at(n_group()) * at(view.shape.key_dim), n_covariance = n_mean * at(view.shape.key_dim);
  std::vector<std::vector<double>> scores(at(n_kv_head()));
  for (int h = 0; h < n_kv_head(); ++h) scores[at(h)].resize(at(n_group()) * at(n_entries(h)));
  const std::vector<HeadPart> parts = cut_heads(*this, kPart, [&](int h) { return n_entries(h); });
  parallel_for_(static_cast<int>(parts.size()), [&](int index) {
    const HeadPart& part = parts[at(index)];
    const std::size_t h = at(part.head);
    const std::vector<double> of_part = expected_scores_of(view, part, mean.subspan(h * n_mean, n_mean),
                                                           covariance.subspan(h * n_covariance, n_covariance));
    const std::int32_t n = part.last - part.first;
    for (int g = 0; g < n_group(); ++g) {
      std::copy_n(of_part.data() + std::ptrdiff_t{g} * n, n,
                  scores[h].data() + std::ptrdiff_t{g} * n_entries(part.head) + part.first);
    }
  });
  return scores;
}

const std::vector<std::vector<float>>& LayerEvidence::projected_value_norms() {
  if (view_.w_o == nullptr && !view_.has_output_projection) {
    refuse_unneeded("values through the output projection", "output_projection");
  }
  return state_->once<Columns>(state_->projected_norms, [&] {
    if (view_.statistics != nullptr) {
      if (auto norms = view_.statistics->projected_value_norms()) return *std::move(norms);
    }
    const LayerView& view = host_view();
    const std::vector<HeadPart> parts = cut_heads(*this, 512, [&](int h) { return n_entries(h); });
    Columns norms = entry_columns(*this);
    const std::size_t n_w_o = at(n_group()) * at(view_.shape.value_dim) * at(view_.n_embd);  // numbers of one group
    parallel_for_(static_cast<int>(parts.size()), [&](int index) {
      const HeadPart& part = parts[at(index)];
      std::vector<kernels::EntryRun> runs;
      const kernels::HeadEntries block =
          slice_entries(view.heads[at(part.head)], view_.shape, part.first, part.last, runs);
      kernels::projected_value_norms(
          view_.shape, block, {view.w_o + at(part.head) * n_w_o, n_w_o}, view_.n_embd,
          std::span(norms[at(part.head)]).subspan(at(part.first), at(part.last - part.first)));
    });
    return norms;
  });
}

}  // namespace winnow
