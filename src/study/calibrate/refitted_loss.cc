#include "study/calibrate/refitted_loss.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "eviction/evidence/stored_rows.h"
#include "eviction/refit/matrix_product.h"
#include "eviction/refit/value_fit.h"
#include "kernels/attention/softmax_row.h"
#include "kernels/entries/rows.h"
#include "study/head_output.h"
#include "winnow/ranking.h"

namespace winnow {
namespace {

// Shares of a head's candidates at which the loss is measured.
constexpr double kShares[] = {0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1};

// Stores a row in `type` and reads it back.
void store_and_load(EntryType type, float* row, int n) {
  std::vector<std::byte> bytes(row_bytes(type, n));
  kernels::store_row(type, row, bytes.data(), n);
  kernels::load_row(type, bytes.data(), row, n);
}

// The reference rows of a KV head's group and their attention over the whole context.
struct Targets {
  int n_rows = 0;                 // rows of all query heads
  std::vector<float> q = {};      // [n_rows][key_dim]
  std::vector<float> value = {};  // [n_rows][value_dim]
  std::vector<float> log_sum_exp = {}, sink_logits = {};
};

Targets targets_of(const LayerView& view, int kv_head, const ReferenceCopy& reference, const std::vector<float>& keys,
                   const std::vector<float>& values) {
  const kernels::AttentionShape shape = view.shape.of_head(kv_head);
  const int d = shape.key_dim, width = shape.value_dim, n_group = shape.n_group;
  const auto n = static_cast<int>(keys.size() / static_cast<std::size_t>(d));
  Targets targets{.n_rows = reference.n_rows * n_group};
  for (int row = 0; row < reference.n_rows; ++row) {
    const float* q = reference.q.data() + (std::ptrdiff_t{row} * view.n_head + std::ptrdiff_t{kv_head} * n_group) * d;
    targets.q.insert(targets.q.end(), q, q + std::ptrdiff_t{n_group} * d);
  }
  if (targets.n_rows == 0) return targets;
  std::vector<float> weights(static_cast<std::size_t>(targets.n_rows) * static_cast<std::size_t>(n));
  multiply(targets.n_rows, n, d, shape.spec.scale, {targets.q.data(), d}, {keys.data(), d, true}, 0.0F, weights.data(),
           n);
  for (int i = 0; i < targets.n_rows; ++i) {
    float* row = weights.data() + std::ptrdiff_t{i} * n;
    float sink = -std::numeric_limits<float>::infinity();
    if (shape.spec.sink_logits != nullptr) targets.sink_logits.push_back(sink = shape.spec.sink_logits[i % n_group]);
    const float largest = kernels::softmax_row(row, n, shape.spec.soft_cap, sink);
    targets.log_sum_exp.push_back(largest - std::log(*std::max_element(row, row + n)));
  }
  targets.value.resize(static_cast<std::size_t>(targets.n_rows) * static_cast<std::size_t>(width));
  multiply(targets.n_rows, width, n, 1.0F, {weights.data(), n}, {values.data(), width}, 0.0F, targets.value.data(),
           width);
  return targets;
}

}  // namespace

ReferenceCopy ReferenceCopy::of(const LayerView& view) {
  const std::ptrdiff_t n = std::ptrdiff_t{view.n_reference_rows} * view.n_head * view.shape.key_dim;
  return {view.n_reference_rows, {view.reference_q, view.reference_q + n}};
}

std::vector<double> refitted_loss_curve(const LayerView& view, int kv_head, const RefittedCut& cut,
                                        const ReferenceCopy& reference, int n_rows) {
  const kernels::AttentionShape shape = view.shape.of_head(kv_head);
  const kernels::HeadEntries& entries = view.heads[static_cast<std::size_t>(kv_head)];
  const auto d = static_cast<std::size_t>(shape.key_dim), width = static_cast<std::size_t>(shape.value_dim);
  std::vector<float> keys = load_rows(shape, entries, kernels::RowKind::kKey, cut.n_context);
  const std::vector<float> values = load_rows(shape, entries, kernels::RowKind::kValue, cut.n_context);
  const HeadOutput head(view, kv_head, cut.n_context, n_rows);
  const Targets targets = targets_of(view, kv_head, reference, keys, values);
  const auto sinks = static_cast<std::size_t>(cut.sinks), n_context = static_cast<std::size_t>(cut.n_context);
  for (std::size_t i = sinks; i < n_context; ++i) store_and_load(cut.key_type, keys.data() + i * d, shape.key_dim);

  const std::size_t n_prefix = cut.scores.size(), n_candidates = n_prefix - sinks;
  const std::vector<std::int32_t> order = order_by_score({cut.scores.begin() + cut.sinks, cut.scores.end()});
  const auto loss_of = [&](std::size_t n_best) {
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < sinks; ++i) kept.push_back(i);
    for (std::size_t i = 0; i < n_best; ++i) kept.push_back(sinks + static_cast<std::size_t>(order[i]));
    for (std::size_t i = n_prefix; i < n_context; ++i) kept.push_back(i);
    std::sort(kept.begin(), kept.end());
    std::vector<float> kept_keys, kept_values;
    for (const std::size_t i : kept) {
      kept_keys.insert(kept_keys.end(), keys.data() + i * d, keys.data() + (i + 1) * d);
      kept_values.insert(kept_values.end(), values.data() + i * width, values.data() + (i + 1) * width);
    }
    std::vector<float> fitted(kept_values.size());
    fit_values({.n_rows = targets.n_rows,
                .q = targets.q.data(),
                .log_sum_exp = targets.log_sum_exp.data(),
                .target = targets.value.data(),
                .sink_logits = targets.sink_logits.empty() ? nullptr : targets.sink_logits.data()},
               {.n_kept = static_cast<int>(kept.size()), .keys = kept_keys.data(), .values = kept_values.data()},
               {.key_dim = shape.key_dim,
                .value_dim = shape.value_dim,
                .scale = shape.spec.scale,
                .soft_cap = shape.spec.soft_cap},
               fitted.data());
    for (std::size_t i = sinks; i < kept.size(); ++i) {
      store_and_load(cut.value_type, fitted.data() + i * width, shape.value_dim);
    }
    return head.error(static_cast<std::int32_t>(kept.size()), kept_keys.data(), fitted.data());
  };

  std::vector<double> loss(n_candidates + 1);
  std::size_t before = 0;
  for (const double share : kShares) {
    const auto at = static_cast<std::size_t>(std::llround(share * static_cast<double>(n_candidates)));
    if (at == before && at > 0) continue;
    // More entries may fit the later rows worse than fewer do; the additional ones need not be kept then.
    const double measured = loss_of(at);
    loss[at] = at > 0 ? std::min(measured, loss[before]) : measured;
    for (std::size_t i = before + 1; i < at; ++i) {
      const double part = static_cast<double>(i - before) / static_cast<double>(at - before);
      loss[i] = loss[before] + part * (loss[at] - loss[before]);
    }
    before = at;
  }
  return loss;
}

}  // namespace winnow
