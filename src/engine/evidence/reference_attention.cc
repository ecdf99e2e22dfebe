#include "engine/evidence/reference_attention.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/aligned_bytes.h"
#include "cache/entry_copies.h"
#include "engine/evidence/query_evidence.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/evidence/query_rows.h"
#include "eviction/evidence/stored_rows.h"
#include "eviction/refit/value_fit.h"
#include "kernels/attention/attention.h"
#include "kernels/entries/rows.h"
#include "winnow/layer_evidence.h"

namespace winnow {

ReferenceAttention::ReferenceAttention(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens,
                                       const std::shared_ptr<PagePool>& pool)
    : reservation_(pool->reserve(bytes_for(spec, range, n_tokens))) {}

std::size_t ReferenceAttention::bytes_for(const ModelSpec& spec, LayerRange range, std::int32_t n_tokens) {
  std::size_t row_bytes_of_all = 0;
  for (int l = range.first; l < range.last; ++l) {
    const LayerSpec& layer = spec.layer(l);
    if (layer.kind != LayerKind::kFullAttention) continue;
    row_bytes_of_all += static_cast<std::size_t>(layer.n_head) *
                        (row_bytes(kStored, layer.key_dim) + row_bytes(kStored, layer.value_dim) + 2 * sizeof(float));
  }
  return static_cast<std::size_t>(std::min(n_tokens, QueryEvidence::kMaxReferenceRows)) * row_bytes_of_all;
}

void ReferenceAttention::add_layer(LayerView& view, const ParallelFor& parallel_for) {
  const auto is_of_layer = [&](const Head& head) { return head.layer == view.layer; };
  if (std::none_of(heads_.begin(), heads_.end(), is_of_layer)) record(view, parallel_for);
  const auto first = std::find_if(heads_.begin(), heads_.end(), is_of_layer);
  const auto n_group = static_cast<std::size_t>(view.shape.n_group),
             n_kv_head = static_cast<std::size_t>(view.n_kv_head);
  log_sum_exp_.resize(static_cast<std::size_t>(view.n_reference_rows * view.n_head));
  for (std::size_t h = 0; h < n_kv_head; ++h) {
    const std::vector<float>& of_head = first[static_cast<std::ptrdiff_t>(h)].log_sum_exp;
    for (std::size_t i = 0; i < of_head.size(); ++i) {
      log_sum_exp_[(i / n_group * n_kv_head + h) * n_group + i % n_group] = of_head[i];
    }
  }
  view.reference_log_sum_exp = log_sum_exp_.data();
}

void ReferenceAttention::record(const LayerView& view, const ParallelFor& parallel_for) {
  const std::size_t first = heads_.size();
  const auto n_group = static_cast<std::size_t>(view.shape.n_group);
  const auto n_rows = static_cast<std::size_t>(view.n_reference_rows);
  for (int h = 0; h < view.n_kv_head; ++h) {
    heads_.push_back({.layer = view.layer,
                      .kv_head = h,
                      .shape = view.shape.of_head(h),
                      .n_rows = static_cast<int>(n_rows * n_group),
                      .q = std::vector<std::byte>(n_rows * n_group * row_bytes(kStored, view.shape.key_dim)),
                      .target = std::vector<std::byte>(n_rows * n_group * row_bytes(kStored, view.shape.value_dim)),
                      .log_sum_exp = std::vector<float>(n_rows * n_group),
                      .sink_logits = {}});
  }
  std::optional<RowAttention> measured;  // where the entries lie on a device
  if (view.statistics != nullptr && view.n_reference_rows > 0) {
    measured = view.statistics->attend({.q = view.reference_q, .n_rows = view.n_reference_rows, .sees_all = true},
                                       /*wants_out=*/true);
  }
  constexpr int kRows = 64;  // in a block of rows: heads alone are too few for the threads
  const int n_blocks = (view.n_reference_rows + kRows - 1) / kRows;
  parallel_for(view.n_kv_head * n_blocks, [&](int item) {
    const int h = item / n_blocks;
    Head& head = heads_[first + static_cast<std::size_t>(h)];
    kernels::QueryRows rows = reference_rows(view, h);
    const int first_row = item % n_blocks * kRows;
    rows.q += first_row * rows.row_stride;
    rows.n_rows = std::min(kRows, view.n_reference_rows - first_row);
    const auto at = static_cast<std::size_t>(first_row) * n_group;  // index among the rows of all query heads
    const int d = view.shape.key_dim, value_dim = view.shape.value_dim, group = view.shape.n_group;
    std::vector<float> out(static_cast<std::size_t>(rows.n_rows * group * value_dim));
    if (measured) {
      for (int r = 0; r < rows.n_rows; ++r) {
        const std::ptrdiff_t from = std::ptrdiff_t{first_row + r} * view.n_head + h * group;  // of the first query head
        std::copy_n(measured->out.data() + from * value_dim, group * value_dim, out.data() + r * group * value_dim);
        std::copy_n(measured->log_sum_exp.data() + from, group, head.log_sum_exp.data() + at + r * group);
      }
    } else {
      AlignedBytes scratch(kernels::causal_attention_scratch_bytes(view.shape));
      kernels::causal_attention(head.shape, view.heads[static_cast<std::size_t>(h)], rows,
                                {.out = out.data(),
                                 .row_stride = std::int64_t{group} * value_dim,
                                 .log_sum_exp = head.log_sum_exp.data() + at},
                                scratch.span());
    }
    for (int r = 0; r < rows.n_rows * group; ++r) {
      const std::size_t to = at + static_cast<std::size_t>(r);
      kernels::store_row(kStored, rows.q + r / group * rows.row_stride + r % group * d,
                         head.q.data() + to * row_bytes(kStored, d), d);
      kernels::store_row(kStored, out.data() + std::ptrdiff_t{r} * value_dim,
                         head.target.data() + to * row_bytes(kStored, value_dim), value_dim);
    }
  });
  if (view.shape.spec.sink_logits == nullptr) return;
  for (std::size_t i = first; i < heads_.size(); ++i) {
    for (std::size_t r = 0; r < n_rows * n_group; ++r)
      heads_[i].sink_logits.push_back(heads_[i].shape.spec.sink_logits[r % n_group]);
  }
}

void ReferenceAttention::refit_head(const Head& head, RaggedCache& cache) const {
  const kernels::AttentionShape& shape = head.shape;
  const EntryCopies copies(cache.shared_memory(), cache.entries(head.layer, head.kv_head), shape.key_dim,
                           shape.value_dim);
  const kernels::HeadEntries entries = copies.entries();
  const std::vector<float> keys = load_rows(shape, entries, kernels::RowKind::kKey, entries.n_entries);
  const std::vector<float> values = load_rows(shape, entries, kernels::RowKind::kValue, entries.n_entries);
  const auto loaded = [&](const std::vector<std::byte>& rows, int n) {
    std::vector<float> numbers(static_cast<std::size_t>(head.n_rows) * static_cast<std::size_t>(n));
    for (int r = 0; r < head.n_rows; ++r) {
      kernels::load_row(kStored, rows.data() + static_cast<std::size_t>(r) * row_bytes(kStored, n),
                        numbers.data() + std::ptrdiff_t{r} * n, n);
    }
    return numbers;
  };
  const std::vector<float> q = loaded(head.q, shape.key_dim), target = loaded(head.target, shape.value_dim);
  std::vector<float> fitted(values.size());
  const bool is_fitted = fit_values({.n_rows = head.n_rows,
                                     .q = q.data(),
                                     .log_sum_exp = head.log_sum_exp.data(),
                                     .target = target.data(),
                                     .sink_logits = head.sink_logits.empty() ? nullptr : head.sink_logits.data()},
                                    {.n_kept = entries.n_entries, .keys = keys.data(), .values = values.data()},
                                    {.key_dim = head.shape.key_dim,
                                     .value_dim = head.shape.value_dim,
                                     .scale = head.shape.spec.scale,
                                     .soft_cap = head.shape.spec.soft_cap},
                                    fitted.data());
  if (is_fitted) cache.store_values(head.layer, head.kv_head, fitted.data());
}

void ReferenceAttention::refit(RaggedCache& cache, const ParallelFor& parallel_for) const {
  std::vector<const Head*> heads;  // the largest first, so that no thread ends late with one
  for (const Head& head : heads_) heads.push_back(&head);
  std::stable_sort(heads.begin(), heads.end(), [&](const Head* a, const Head* b) {
    return cache.n_entries(a->layer, a->kv_head) > cache.n_entries(b->layer, b->kv_head);
  });
  parallel_for(static_cast<int>(heads.size()), [&](int i) { refit_head(*heads[static_cast<std::size_t>(i)], cache); });
  cache.code_values(parallel_for);
}

}  // namespace winnow
