#include "engine/prefill/late_repeat.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/aligned_bytes.h"
#include "base/stopwatch.h"
#include "engine/engine_impl.h"
#include "engine/evidence/layer_views.h"
#include "engine/evidence/query_evidence.h"
#include "engine/evidence/reference_attention.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/query_rows.h"
#include "kernels/statistics/window_statistics.h"
#include "winnow/eviction.h"
#include "winnow/layer_evidence.h"

namespace winnow {
namespace {

// The rows of all parts see one in so many of the entries, and the first and last ones: attention sinks, and what the
// sequence ends with.
constexpr std::int32_t kOneIn = 8, kFirst = 4, kLast = 32;

}  // namespace

std::vector<std::vector<std::int32_t>> entries_seen_everywhere(const LayerView& view, const ParallelFor& parallel_for) {
  EvictionOptions options;
  options.window = kLast;
  LayerEvidence evidence(view, options, 0, parallel_for);
  const std::vector<std::vector<float>>& rms = evidence.reference_rms();
  std::vector<std::vector<std::int32_t>> seen(rms.size());
  evidence.for_each_head([&](int head) {
    const std::vector<float>& scores = rms[static_cast<std::size_t>(head)];
    const std::int32_t n = evidence.n_entries(head);
    std::vector<std::int32_t>& entries = seen[static_cast<std::size_t>(head)];
    entries.resize(scores.size());
    std::iota(entries.begin(), entries.end(), 0);
    const auto n_chosen = std::min(std::ssize(entries), std::ptrdiff_t{n / kOneIn});
    std::nth_element(entries.begin(), entries.begin() + n_chosen, entries.end(), [&](std::int32_t a, std::int32_t b) {
      const float of_a = scores[static_cast<std::size_t>(a)], of_b = scores[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    });
    entries.resize(static_cast<std::size_t>(n_chosen));
    for (std::int32_t i = 0; i < std::min(evidence.n_prefix(head), kFirst); ++i) entries.push_back(i);
    for (std::int32_t i = evidence.n_prefix(head); i < n; ++i) entries.push_back(i);
    std::sort(entries.begin(), entries.end());
    entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  });
  return seen;
}

std::vector<std::vector<std::int32_t>> entries_seen_near_last(std::span<const std::vector<std::int32_t>> everywhere,
                                                              const RepeatedPart& part) {
  std::vector<std::vector<std::int32_t>> seen;
  for (const std::vector<std::int32_t>& of_head : everywhere) {
    std::vector<std::int32_t>& entries = seen.emplace_back(of_head);
    auto next = std::lower_bound(of_head.begin(), of_head.end(), part.near_first);
    for (std::int32_t i = part.near_first; i < part.near_end; ++i) {
      if (next != of_head.end() && *next == i) {
        ++next;
      } else {
        entries.push_back(i);
      }
    }
  }
  return seen;
}

std::vector<std::vector<std::int32_t>> entries_seen(std::span<const std::vector<std::int32_t>> everywhere,
                                                    const RepeatedPart& part) {
  std::vector<std::vector<std::int32_t>> seen = entries_seen_near_last(everywhere, part);
  for (std::size_t h = 0; h < seen.size(); ++h) {
    std::inplace_merge(seen[h].begin(), seen[h].begin() + std::ssize(everywhere[h]), seen[h].end());
  }
  return seen;
}

std::int32_t most_entries_seen(const LateRepeat& repeat, std::int32_t n_tokens) {
  return std::min(n_tokens, n_tokens / kOneIn + kFirst + kLast + repeat.n_part + 2 * repeat.n_near);
}

void replay_rows(const LayerView& view, const RepeatedPart& part, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for) {
  constexpr std::int32_t kRows = 64;
  const auto n_head = static_cast<std::size_t>(view.n_head), key_dim = static_cast<std::size_t>(view.shape.key_dim);
  const auto n_group = static_cast<std::size_t>(view.shape.n_group);
  const auto first_head = static_cast<std::size_t>(part.first) * n_head;
  const std::int32_t n = part.end - part.first, n_blocks = (n + kRows - 1) / kRows;
  float* const own_q = q.data() + first_head * key_dim;
  float* const own_sums = log_sum_exp.data() + first_head;
  parallel_for(n, [&](int row) {
    rotate_further(own_q + static_cast<std::size_t>(row) * n_head * key_dim, n_head, key_dim, view.rotation,
                   view.n_tokens - part.first);
  });
  const auto add = [](float& sum, float other) {
    sum = std::max(sum, other) + std::log1p(std::exp(-std::abs(sum - other)));
  };
  if (view.statistics != nullptr) {
    const RowAttention measured =
        view.statistics->attend({.q = own_q, .n_rows = n, .sees_all = true}, /*wants_out=*/false);
    for (std::size_t i = 0; i < measured.log_sum_exp.size(); ++i) add(own_sums[i], measured.log_sum_exp[i]);
    return;
  }
  parallel_for(n_blocks * view.n_kv_head, [&](int item) {
    const int head = item % view.n_kv_head;
    const std::int32_t first = item / view.n_kv_head * kRows, n_rows = std::min(kRows, n - first);
    const kernels::QueryRows rows = rows_of_head(
        view, {.q = own_q + static_cast<std::size_t>(first) * n_head * key_dim, .n_rows = n_rows, .sees_all = true},
        head);
    AlignedBytes scratch(kernels::window_statistics_scratch_bytes(view.shape, n_rows));
    std::vector<float> sums(n_group * static_cast<std::size_t>(n_rows));
    kernels::row_log_sum_exps(view.shape.of_head(head), view.heads[static_cast<std::size_t>(head)], rows, sums.data(),
                              scratch.span());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      add(own_sums[(static_cast<std::size_t>(first) + i / n_group) * n_head + static_cast<std::size_t>(head) * n_group +
                   i % n_group],
          sums[i]);
    }
  });
}

LateRepeatLayers::LateRepeatLayers(Engine::Impl& engine, StagingBuffer& staging, ForwardPass& pass,
                                   const LateRepeat& repeat, std::int32_t n_tokens, QueryEvidence* evidence,
                                   ReferenceAttention* reference)
    : engine_(engine),
      staging_(staging),
      pass_(pass),
      n_tokens_(n_tokens),
      evidence_(most_entries_seen(repeat, n_tokens) < n_tokens ? evidence : nullptr),
      reference_(reference) {}

void LateRepeatLayers::begin_part(int layer, const RepeatedPart& part) {
  if (!staging_.shape().layer(layer).is_evictable()) return;
  const Stopwatch watch;
  if (part.first == 0) choose_seen(layer);
  if (!seen_.empty()) {
    staging_.begin_layer(layer);
    show_seen(part);
  }
  seconds_ += watch.seconds();
}

void LateRepeatLayers::replay(int layer) {
  const Stopwatch watch;
  SuffixQueries::Rows& rows = pass_.queries().replayed(layer);
  choose_seen(layer);
  staging_.begin_rows(layer, 0, n_tokens_);
  for (const RepeatedPart& part : pass_.repeated_parts()) {
    if (!seen_.empty()) {
      show_seen(part);
      staging_.begin_rows(layer, n_tokens_, 0);
    }
    const LayerViews views(engine_, staging_, layer, n_tokens_, {}, &pass_.rows());
    replay_rows(views.entries(), part, rows.q, rows.log_sum_exp, engine_.parallel_for());
  }
  seconds_ += watch.seconds();
}

// On the processor the order of entries decides the last bits of sums. On a device, what all parts see comes first: it
// is copied once.
void LateRepeatLayers::show_seen(const RepeatedPart& part) {
  const bool is_host = engine_.pool->memory()->is_host();
  staging_.show_only(n_tokens_, is_host ? entries_seen(seen_, part) : entries_seen_near_last(seen_, part));
}

void LateRepeatLayers::choose_seen(int layer) {
  seen_.clear();
  if (evidence_ == nullptr) return;
  staging_.begin_rows(layer, 0, n_tokens_);
  LayerViews views(engine_, staging_, layer, n_tokens_, {}, &pass_.rows());
  LayerView view = views.of(*evidence_, {.reference_rows = true}, 0);
  if (reference_ != nullptr) reference_->add_layer(view, engine_.parallel_for());
  seen_ = entries_seen_everywhere(view, engine_.parallel_for());
}

}  // namespace winnow
