#include "engine/evidence/code_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "cache/ragged_cache.h"
#include "eviction/evidence/entry_statistics.h"
#include "eviction/refit/matrix_product.h"
#include "kernels/attention/softmax_row.h"
#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"

namespace winnow {
namespace {

constexpr std::int32_t kSamples = 256;
constexpr int kRowsApart = 8;

// Returns the entries that stand for all: the first ones, and others evenly spaced.
std::vector<std::int32_t> sampled(std::int32_t n_entries) {
  std::vector<std::int32_t> samples;
  const std::int32_t n_first = std::min(n_entries, kPlainEntries), n_others = n_entries - n_first;
  for (std::int32_t i = 0; i < n_first; ++i) samples.push_back(i);
  const std::int32_t n = std::min(n_others, kSamples);
  for (std::int32_t i = 0; i < n; ++i) {
    samples.push_back(n_first + static_cast<std::int32_t>(std::int64_t{i} * n_others / n));
  }
  return samples;
}

// Returns rows [n][dim] as they are read after they were stored, coded less `origin` where there is one; the first
// kPlainEntries are returned unchanged.
std::vector<float> stored_and_read(std::span<const float> rows, int dim, EntryType type, std::span<const float> origin,
                                   const kernels::CodeFeedback* feedback) {
  const auto width = static_cast<std::size_t>(dim);
  const std::size_t n = rows.size() / width;
  std::vector<float> read(rows.begin(), rows.end()), relative(kernels::kFeedbackRows * width);
  const std::size_t row_size = row_bytes(type, dim);
  std::vector<std::byte> codes(kernels::kFeedbackRows * row_size);
  for (std::size_t first = kPlainEntries; first < n; first += kernels::kFeedbackRows) {
    const std::size_t n_rows = std::min<std::size_t>(kernels::kFeedbackRows, n - first);
    std::vector<std::byte*> targets;
    for (std::size_t r = 0; r < n_rows; ++r) {
      targets.push_back(codes.data() + r * row_size);
      for (std::size_t c = 0; c < width; ++c) {
        relative[r * width + c] = rows[(first + r) * width + c] - (origin.empty() ? 0 : origin[c]);
      }
    }
    if (feedback != nullptr && kernels::code_bits(type) > 0) {
      kernels::store_coded_rows(type, *feedback, relative.data(), targets);
    } else {
      for (std::size_t r = 0; r < n_rows; ++r) kernels::store_row(type, relative.data() + r * width, targets[r], dim);
    }
    for (std::size_t r = 0; r < n_rows; ++r) {
      float* row = read.data() + (first + r) * width;
      kernels::load_row(type, targets[r], row, dim);
      for (std::size_t c = 0; c < origin.size(); ++c) row[c] += origin[c];
    }
  }
  return read;
}

// Returns some entries of a head, wherever they lie.
EntryRows load_entries(const LayerView& view, int head, std::span<const std::int32_t> entries) {
  if (view.statistics != nullptr) return view.statistics->rows(head, entries);
  const auto key_dim = static_cast<std::size_t>(view.shape.key_dim),
             value_dim = static_cast<std::size_t>(view.shape.value_dim);
  EntryRows rows{.keys = std::vector<float>(entries.size() * key_dim),
                 .values = std::vector<float>(entries.size() * value_dim)};
  kernels::RunCursor cursor(view.heads[static_cast<std::size_t>(head)]);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const kernels::RunCursor::Piece piece = cursor.seek(entries[i]);
    kernels::load_entry(view.shape, *piece.run, kernels::RowKind::kKey, piece.offset, rows.keys.data() + i * key_dim);
    kernels::load_entry(view.shape, *piece.run, kernels::RowKind::kValue, piece.offset,
                        rows.values.data() + i * value_dim);
  }
  return rows;
}

// Returns the origin that a head's keys would be coded relative to: the mean of those after the first ones, in float16.
std::vector<float> origin_of(const LayerView& view, int head) {
  const int d = view.shape.key_dim;
  std::vector<std::byte> mean(row_bytes(EntryType::kF16, d));
  if (view.statistics != nullptr) {
    mean = *view.statistics->origins()[static_cast<std::size_t>(head)];
  } else {
    const kernels::HeadEntries& entries = view.heads[static_cast<std::size_t>(head)];
    kernels::store_mean_key(entries, d, kPlainEntries, entries.n_entries, mean.data());
  }
  std::vector<float> origin(static_cast<std::size_t>(d));
  kernels::load_row(EntryType::kF16, mean.data(), origin.data(), d);
  return origin;
}

// Returns the cost of one KV head.
CodeCost cost_of_head(const LayerView& view, int head, EntryType key_type, EntryType value_type,
                      const kernels::CodeFeedback* feedback) {
  const kernels::AttentionShape& shape = view.shape;
  const std::vector<std::int32_t> samples = sampled(view.heads[static_cast<std::size_t>(head)].n_entries);
  const int n = static_cast<int>(samples.size()), d = shape.key_dim, value_dim = shape.value_dim;
  if (n <= kPlainEntries) return {};
  const auto [keys, values] = load_entries(view, head, samples);
  const std::vector<float> origin = origin_of(view, head);
  const std::vector<float> coded_keys = stored_and_read(keys, d, key_type, origin, feedback);
  const std::vector<float> coded_values = stored_and_read(values, value_dim, value_type, {}, nullptr);

  const int n_group = shape.n_group;
  const int n_rows = (view.n_reference_rows + kRowsApart - 1) / kRowsApart * n_group;
  std::vector<float> q;
  for (int r = 0; r < view.n_reference_rows; r += kRowsApart) {
    const float* row = view.reference_q + (std::ptrdiff_t{r} * view.n_head + head * n_group) * d;
    q.insert(q.end(), row, row + std::ptrdiff_t{n_group} * d);
  }
  const auto attention = [&](const std::vector<float>& of_keys) {
    std::vector<float> weights(static_cast<std::size_t>(n_rows) * samples.size());
    multiply(n_rows, n, d, shape.spec.scale, {q.data(), d}, {of_keys.data(), d, true}, 0.0F, weights.data(), n);
    for (int r = 0; r < n_rows; ++r) {
      const float sink = shape.spec.sink_logits == nullptr ? -std::numeric_limits<float>::infinity()
                                                           : shape.spec.sink_logits[head * n_group + r % n_group];
      kernels::softmax_row(weights.data() + std::ptrdiff_t{r} * n, n, shape.spec.soft_cap, sink);
    }
    return weights;
  };
  const std::vector<float> exact = attention(keys), coded = attention(coded_keys);
  std::vector<double> on_entry(samples.size());  // the attention of all rows to each entry
  double kl = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double a = static_cast<double>(exact[i]), b = static_cast<double>(coded[i]);
    constexpr double kLeast = 1e-30;
    if (a > 0) kl += a * std::log(a / std::max(b, kLeast)) - a + b;  // the sink takes the rest of each row
    on_entry[i % samples.size()] += a;
  }
  double error = 0, square = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(value_dim); ++c) {
      const std::size_t at = i * static_cast<std::size_t>(value_dim) + c;
      const double v = static_cast<double>(values[at]), e = static_cast<double>(coded_values[at]) - v;
      error += on_entry[i] * e * e;
      square += on_entry[i] * v * v;
    }
  }
  // Costs that are not finite come from keys or values that are not, which are refused elsewhere.
  const auto finite = [](double x) { return std::isfinite(x) ? x : 0.0; };
  return {.keys = finite(kl / n_rows), .values = square > 0 ? finite(error / square) : 0.0};
}

}  // namespace

std::vector<CodeCost> code_costs(const LayerView& view, EntryType key_type, EntryType value_type,
                                 std::span<const std::shared_ptr<const kernels::CodeFeedback>> feedback,
                                 const ParallelFor& parallel_for) {
  std::vector<CodeCost> costs(static_cast<std::size_t>(view.n_kv_head));
  if (view.n_reference_rows == 0) return costs;
  if (view.statistics != nullptr) view.statistics->origins();  // before threads ask for it
  parallel_for(view.n_kv_head, [&](int h) {
    const auto at = static_cast<std::size_t>(h);
    costs[at] = cost_of_head(view, h, key_type, value_type, feedback.empty() ? nullptr : feedback[at].get());
  });
  return costs;
}

bool measures_codes(const SessionOptions& options) {
  return !options.eviction.evicts() && (kernels::is_coded(options.key_type) || kernels::is_coded(options.value_type));
}

void add_code_costs(CodeLoss& loss, int layer, std::span<const CodeCost> costs) {
  for (std::size_t h = 0; h < costs.size(); ++h) {
    add_code_loss(loss, {.mean_keys = costs[h].keys,
                         .most_keys = costs[h].keys,
                         .layer = layer,
                         .kv_head = static_cast<int>(h),
                         .most_values = costs[h].values,
                         .n_heads = 1,
                         .n_too_much = costs[h].is_too_much() ? 1 : 0});
  }
}

void add_code_loss(CodeLoss& loss, const CodeLoss& other) {
  const std::int64_t n = loss.n_heads + other.n_heads;
  if (n == 0) return;
  loss.mean_keys =
      (loss.mean_keys * static_cast<double>(loss.n_heads) + other.mean_keys * static_cast<double>(other.n_heads)) /
      static_cast<double>(n);
  if (loss.n_heads == 0 || other.most_keys > loss.most_keys) {
    loss.most_keys = other.most_keys;
    loss.layer = other.layer;
    loss.kv_head = other.kv_head;
  }
  loss.most_values = std::max(loss.most_values, other.most_values);
  loss.n_heads = n;
  loss.n_too_much += other.n_too_much;
}

}  // namespace winnow
