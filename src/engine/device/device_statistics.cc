#include "engine/device/device_statistics.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "engine/device/device_pass.h"
#include "eviction/evidence/stored_rows.h"
#include "kernels/entries/run_cursor.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// The kernels keep a few bytes for each row in memory that is small.
constexpr int kMostRows = 1024;
// Rows whose queries go up together, to be folded.
constexpr int kFoldedRows = 4096;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Parts of one block of memory, each aligned as a block.
class Layout {
 public:
  template <class T>
  std::size_t take(std::size_t n) {
    return std::exchange(bytes_, (bytes_ + n * sizeof(T) + 255) / 256 * 256);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace

// Addresses in the device's memory.
struct DeviceStatistics::Inputs {
  const float* q;
  const device::HeadTable* heads;
  const std::int32_t* n_columns;
  const float* key_factors;  // or null
};

DeviceStatistics::DeviceStatistics(MeasuredLayer layer, LayerEntries entries)
    : layer_(std::move(layer)), entries_(std::move(entries)) {
  for (const HeadRows& head : entries_.rows) {
    n_most_ = std::max(n_most_, head.n_entries);
    n_pages_ += head.pages.size();
  }
  if (entries_.key_scales == nullptr) return;
  key_factors_.resize(at(n_kv_head()) * at(layer_.attention.key_dim));
  for (std::size_t i = 0; i < key_factors_.size(); ++i) key_factors_[i] = 1 / entries_.key_scales[i];
}

// Everything goes up in one piece. Pages of codes are dequantised for the first kernel that asks.
DeviceStatistics::Inputs DeviceStatistics::upload(const float* q, int n_rows, std::span<const std::int32_t> n_columns,
                                                  bool shows_values) {
  if (!is_dequantised_) {
    dequantised_.show(layer_.device, entries_.rows, layer_.attention.key_dim, layer_.attention.value_dim);
    is_dequantised_ = true;
  }
  const std::size_t n_floats = at(n_rows) * at(layer_.attention.n_head) * at(layer_.attention.key_dim);
  Layout layout;
  const std::size_t q_at = layout.take<float>(n_floats), pages_at = layout.take<PageRows>(n_pages_),
                    heads_at = layout.take<device::HeadTable>(entries_.rows.size()),
                    columns_at = layout.take<std::int32_t>(n_columns.size()),
                    factors_at = layout.take<float>(key_factors_.size());
  grow(layer_.device, layer_.memory.inputs, layout.bytes());
  layer_.memory.uploaded.resize(layout.bytes());
  std::byte* const to = layer_.memory.uploaded.data();
  if (n_floats > 0) std::memcpy(to + q_at, q, n_floats * sizeof(float));
  std::size_t page = 0;
  for (std::size_t h = 0; h < entries_.rows.size(); ++h) {
    const HeadRows& rows = entries_.rows[h];
    const device::HeadTable table = {
        .pages = reinterpret_cast<const PageRows*>(layer_.memory.inputs.data() + pages_at) + page,
        .first_slot = rows.first_slot,
        .n_entries = rows.n_entries};
    std::memcpy(to + heads_at + h * sizeof(table), &table, sizeof(table));
    for (const PageRows& of_head : rows.pages) {
      const PageRows shown = {.keys = shows_values ? of_head.values : of_head.keys, .values = of_head.values};
      std::memcpy(to + pages_at + page++ * sizeof(PageRows), &shown, sizeof(shown));
    }
  }
  if (!n_columns.empty()) std::memcpy(to + columns_at, n_columns.data(), n_columns.size_bytes());
  std::copy(key_factors_.begin(), key_factors_.end(), reinterpret_cast<float*>(to + factors_at));
  layer_.device.upload(layer_.memory.inputs.data(), to, layout.bytes());
  const std::byte* const from = layer_.memory.inputs.data();
  return {.q = reinterpret_cast<const float*>(from + q_at),
          .heads = reinterpret_cast<const device::HeadTable*>(from + heads_at),
          .n_columns = reinterpret_cast<const std::int32_t*>(from + columns_at),
          .key_factors = key_factors_.empty() ? nullptr : reinterpret_cast<const float*>(from + factors_at)};
}

// Measures the columns that are asked for, and the sums of squares where these have a place.
WindowStatistics DeviceStatistics::measure(const StatisticsRows& rows, unsigned columns,
                                           std::vector<std::vector<float>>* squares,
                                           std::span<const std::int32_t> n_columns) {
  const Inputs inputs = upload(rows.q, rows.n_rows, n_columns);
  const std::size_t n_head = at(layer_.attention.n_head);
  const std::size_t stride = at(std::max(*std::max_element(n_columns.begin(), n_columns.end()), 1));

  WindowStatistics result;
  result.n_rows = rows.n_rows;
  struct Column {
    std::vector<std::vector<float>>* to;
    float* device::WindowStatistics::*of_plan;
    std::size_t from;
  };
  Layout outputs;
  std::vector<Column> wanted;
  const auto want = [&](bool is_wanted, std::vector<std::vector<float>>* to,
                        float* device::WindowStatistics::*of_plan) {
    if (is_wanted) wanted.push_back({.to = to, .of_plan = of_plan, .from = outputs.take<float>(n_head * stride)});
  };
  want((columns & kWindowMean) != 0, &result.mean, &device::WindowStatistics::mean);
  want((columns & kWindowM2) != 0, &result.m2, &device::WindowStatistics::m2);
  want((columns & kWindowMax) != 0, &result.max, &device::WindowStatistics::max);
  want((columns & kWindowLast) != 0, &result.last, &device::WindowStatistics::last);
  want(squares != nullptr, squares, &device::WindowStatistics::squares);
  const bool has_entropy = (columns & kWindowEntropy) != 0;
  const std::size_t entropy_at = outputs.take<double>(has_entropy ? n_head : 0);
  grow(layer_.device, layer_.memory.outputs, outputs.bytes());

  const std::size_t n_slices = n_head * device::kMaxStatisticsSlices;
  Layout workspace;
  const std::size_t max_at = workspace.take<float>(n_slices * at(rows.n_rows)),
                    sum_at = workspace.take<float>(n_slices * at(rows.n_rows)),
                    slices_at = workspace.take<double>(n_slices);
  grow(layer_.device, layer_.memory.workspace, workspace.bytes());

  device::WindowStatistics plan = {
      .layer = layer_.attention,
      .q = inputs.q,
      .n_rows = rows.n_rows,
      .sees_all = rows.sees_all,
      .heads = inputs.heads,
      .n_most = n_most_,
      .stride = static_cast<std::int32_t>(stride),
      .n_columns = inputs.n_columns,
      .mean = nullptr,
      .m2 = nullptr,
      .max = nullptr,
      .last = nullptr,
      .squares = nullptr,
      .entropy = has_entropy ? reinterpret_cast<double*>(layer_.memory.outputs.data() + entropy_at) : nullptr,
      .row_max = reinterpret_cast<float*>(layer_.memory.workspace.data() + max_at),
      .row_sum = reinterpret_cast<float*>(layer_.memory.workspace.data() + sum_at),
      .slice_entropy = reinterpret_cast<double*>(layer_.memory.workspace.data() + slices_at)};
  for (const Column& column : wanted) {
    plan.*column.of_plan = reinterpret_cast<float*>(layer_.memory.outputs.data() + column.from);
  }
  layer_.device.queue(plan);

  layer_.memory.downloaded.resize(std::max(layer_.memory.downloaded.size(), outputs.bytes()));
  if (outputs.bytes() > 0)
    layer_.device.download(layer_.memory.downloaded.data(), layer_.memory.outputs.data(), outputs.bytes());
  for (const Column& column : wanted) take_columns(column.from, stride, n_columns, *column.to);
  if (has_entropy) {
    const auto* from = reinterpret_cast<const double*>(layer_.memory.downloaded.data() + entropy_at);
    for (int h = 0; h < n_kv_head(); ++h, from += n_group()) result.entropy.emplace_back(from, from + n_group());
  }
  return result;
}

std::optional<WindowStatistics> DeviceStatistics::window(const StatisticsRows& rows, unsigned columns,
                                                         std::span<const std::int32_t> n_columns) {
  if (rows.n_rows > kMostRows) return std::nullopt;
  return measure(rows, columns, nullptr, n_columns);
}

std::optional<std::vector<std::vector<float>>> DeviceStatistics::squares(const StatisticsRows& rows,
                                                                         std::span<const std::int32_t> n_columns) {
  if (rows.n_rows > kMostRows) return std::nullopt;
  std::vector<std::vector<float>> squares;
  measure(rows, 0, &squares, n_columns);
  return squares;
}

// Nobody has looked at rows that were kept: what is not finite shows in their sums.
void DeviceStatistics::check_sums(std::span<const float> log_sum_exp) const {
  if (std::none_of(log_sum_exp.begin(), log_sum_exp.end(),
                   [](float x) { return std::isnan(x) || (std::isinf(x) && x > 0); })) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, "the queries of layer " + std::to_string(entries_.layer) +
                                               " hold a number that is not finite: the model is broken there");
}

std::optional<std::vector<std::vector<float>>> DeviceStatistics::fold(kernels::ColumnFold fold,
                                                                      const StatisticsRows& rows,
                                                                      const float* log_sum_exp,
                                                                      std::span<const kernels::EntryRange> ranges) {
  if (fold == kernels::ColumnFold::kSquares || layer_.attention.sliding_window > 0) return std::nullopt;
  if (rows.q == nullptr) check_sums(std::span(log_sum_exp, at(rows.n_rows) * at(layer_.attention.n_head)));
  std::vector<std::int32_t> bounds;  // the first entry of every range, then their sizes
  for (const kernels::EntryRange& range : ranges) bounds.push_back(range.first);
  for (const kernels::EntryRange& range : ranges) bounds.push_back(range.size());
  const auto n_columns = std::span<const std::int32_t>(bounds).subspan(ranges.size());
  const Inputs inputs = upload(nullptr, 0, bounds);
  const std::size_t n_head = at(layer_.attention.n_head), row = n_head * at(layer_.attention.key_dim);
  const std::size_t stride = at(std::max(*std::max_element(n_columns.begin(), n_columns.end()), 1));
  const int n_most_rows = std::min(rows.n_rows, kFoldedRows);
  grow(layer_.device, layer_.memory.outputs, n_head * stride * sizeof(float));
  grow(layer_.device, layer_.memory.workspace,
       device::fold_workspace_bytes(n_most_rows, layer_.attention.n_head, layer_.attention.key_dim));
  Layout layout;
  const std::size_t q_at = layout.take<float>(rows.q == nullptr ? 0 : at(n_most_rows) * row),
                    sums_at = layout.take<float>(at(n_most_rows) * n_head);
  grow(layer_.device, layer_.memory.rows, layout.bytes());
  for (int first = 0; first < rows.n_rows; first += kFoldedRows) {
    const int n = std::min(kFoldedRows, rows.n_rows - first);
    const auto* q = reinterpret_cast<const float*>(layer_.memory.rows.data() + q_at);
    if (rows.q == nullptr) {
      q = kept(rows.first_row + first);
    } else {
      layer_.device.upload(layer_.memory.rows.data() + q_at, rows.q + at(first) * row, at(n) * row * sizeof(float));
    }
    layer_.device.upload(layer_.memory.rows.data() + sums_at, log_sum_exp + at(first) * n_head,
                         at(n) * n_head * sizeof(float));
    layer_.device.queue(
        device::ColumnFolds{.layer = layer_.attention,
                            .q = q,
                            .log_sum_exp = reinterpret_cast<const float*>(layer_.memory.rows.data() + sums_at),
                            .n_rows = n,
                            .n_later = rows.n_rows - first - n,
                            .sees_all = rows.sees_all,
                            .is_max = fold == kernels::ColumnFold::kMax,
                            .adds = first > 0,
                            .heads = inputs.heads,
                            .stride = static_cast<std::int32_t>(stride),
                            .first_columns = inputs.n_columns,
                            .n_columns = inputs.n_columns + ranges.size(),
                            .columns = layer_.memory.outputs.as<float>(),
                            .workspace = layer_.memory.workspace.data()});
  }
  layer_.memory.downloaded.resize(std::max(layer_.memory.downloaded.size(), n_head * stride * sizeof(float)));
  layer_.device.download(layer_.memory.downloaded.data(), layer_.memory.outputs.data(),
                         n_head * stride * sizeof(float));
  std::vector<std::vector<float>> columns;
  take_columns(0, stride, n_columns, columns);
  return columns;
}

void DeviceStatistics::take_columns(std::size_t from, std::size_t stride, std::span<const std::int32_t> n_columns,
                                    std::vector<std::vector<float>>& to) const {
  const auto* columns = reinterpret_cast<const float*>(layer_.memory.downloaded.data() + from);
  to.resize(at(n_kv_head()));
  layer_.parallel_for(n_kv_head(), [&](int h) {
    const std::size_t n = at(n_columns[at(h)]);
    to[at(h)].reserve(at(n_group()) * n);
    for (int g = 0; g < n_group(); ++g) {
      const float* row = columns + at(h * n_group() + g) * stride;
      to[at(h)].insert(to[at(h)].end(), row, row + n);
    }
  });
}

std::vector<std::vector<double>> DeviceStatistics::quadratic_forms(const device::LayerAttention& layer,
                                                                   const Inputs& inputs,
                                                                   std::span<const float> moments) {
  grow(layer_.device, layer_.memory.rows, moments.size_bytes());
  layer_.device.upload(layer_.memory.rows.data(), moments.data(), moments.size_bytes());
  const std::size_t stride = at(n_most_), n = at(layer.n_head) * stride;
  grow(layer_.device, layer_.memory.outputs, n * sizeof(float));
  const auto* m = layer_.memory.rows.as<float>();
  layer_.device.queue(device::ExpectedScores{.layer = layer,
                                             .heads = inputs.heads,
                                             .n_most = n_most_,
                                             .stride = n_most_,
                                             .mean = m,
                                             .covariance = m + at(layer.n_head) * at(layer.key_dim),
                                             .scores = layer_.memory.outputs.as<float>()});
  layer_.memory.downloaded.resize(std::max(layer_.memory.downloaded.size(), n * sizeof(float)));
  if (n > 0) layer_.device.download(layer_.memory.downloaded.data(), layer_.memory.outputs.data(), n * sizeof(float));
  const auto* from = reinterpret_cast<const float*>(layer_.memory.downloaded.data());
  const int n_heads = layer.n_head / layer.n_kv_head;  // of a group
  std::vector<std::vector<double>> forms(at(n_kv_head()));
  layer_.parallel_for(n_kv_head(), [&](int h) {
    for (int g = 0; g < n_heads; ++g) {
      const float* row = from + at(h * n_heads + g) * stride;
      forms[at(h)].insert(forms[at(h)].end(), row, row + entries_.rows[at(h)].n_entries);
    }
  });
  return forms;
}

std::vector<std::vector<double>> DeviceStatistics::expected_scores(std::span<const double> mean,
                                                                   std::span<const double> covariance) {
  const Inputs inputs = upload(nullptr, 0, {});
  std::vector<float> moments(mean.begin(), mean.end());
  moments.insert(moments.end(), covariance.begin(), covariance.end());
  return quadratic_forms(layer_.attention, inputs, moments);
}

std::vector<std::vector<double>> DeviceStatistics::value_forms(std::vector<float> matrices) {
  device::LayerAttention layer = layer_.attention;
  layer.key_dim = layer.value_dim;
  layer.key_type = layer.value_type;
  layer.scale = 1;
  const Inputs inputs = upload(nullptr, 0, {}, /*shows_values=*/true);
  for (float& x : matrices) x *= 2;  // a form is halved
  std::vector<float> moments(at(layer.n_head) * at(layer.key_dim), 0.0F);
  moments.insert(moments.end(), matrices.begin(), matrices.end());
  return quadratic_forms(layer, inputs, moments);
}

// The norms and the sums lie in the outputs, one after the other.
DeviceStatistics::SummedKeys DeviceStatistics::sum_keys(std::int32_t first, bool by_direction) {
  const Inputs inputs = upload(nullptr, 0, {});
  const int n_slices = device::key_sum_slices(n_most_);
  const std::size_t width = at(layer_.attention.key_dim), n_lengths = by_direction ? at(n_kv_head()) * at(n_most_) : 0,
                    n_sums = at(n_kv_head()) * at(n_slices) * width;
  SummedKeys result{.sums = {}, .lengths = std::vector<float>(n_lengths)};
  std::vector<float> of_slices(n_sums);
  Layout layout;
  const std::size_t lengths_at = layout.take<float>(n_lengths), sums_at = layout.take<float>(n_sums);
  grow(layer_.device, layer_.memory.outputs, layout.bytes());
  auto* const lengths = reinterpret_cast<float*>(layer_.memory.outputs.data() + lengths_at);
  auto* const sums = reinterpret_cast<float*>(layer_.memory.outputs.data() + sums_at);
  if (n_lengths > 0) {
    layer_.device.queue(device::RowNorms{.layer = layer_.attention,
                                         .heads = inputs.heads,
                                         .n_most = n_most_,
                                         .stride = n_most_,
                                         .key_factors = inputs.key_factors,
                                         .key_l2 = lengths,
                                         .value_l1 = nullptr,
                                         .value_l2 = nullptr});
    layer_.device.download(result.lengths.data(), lengths, n_lengths * sizeof(float));
  }
  if (n_sums > 0) {
    layer_.device.queue(device::KeySums{.layer = layer_.attention,
                                        .heads = inputs.heads,
                                        .n_most = n_most_,
                                        .first = first,
                                        .sums = sums,
                                        .lengths = by_direction ? lengths : nullptr});
    layer_.device.download(of_slices.data(), sums, n_sums * sizeof(float));
  }
  const float* of_slice = of_slices.data();
  for (int h = 0; h < n_kv_head(); ++h) {
    std::vector<double>& sum = result.sums.emplace_back(width);
    for (int s = 0; s < n_slices; ++s) {
      for (double& x : sum) x += static_cast<double>(*of_slice++);
    }
  }
  return result;
}

// The mean's length does not matter. A dot product is the linear part of a form without a matrix. Factors of keys
// multiply the mean, once for its own sake and once for the keys'.
std::vector<std::vector<float>> DeviceStatistics::mean_key_cosines() {
  SummedKeys keys = sum_keys(0, /*by_direction=*/true);
  const auto multiply = [&](std::vector<double>& sum, std::size_t head) {
    if (key_factors_.empty()) return;
    const float* const factors = key_factors_.data() + head * sum.size();
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] *= static_cast<double>(factors[c]);
  };
  device::LayerAttention layer = layer_.attention;
  layer.n_head = layer.n_kv_head;
  layer.scale = 1;
  std::vector<float> moments;
  for (std::size_t h = 0; h < keys.sums.size(); ++h) {
    std::vector<double>& sum = keys.sums[h];
    multiply(sum, h);
    double square = 0;
    for (const double x : sum) square += x * x;
    multiply(sum, h);
    for (const double x : sum) moments.push_back(static_cast<float>(x / std::max(std::sqrt(square), kTinyLength)));
  }
  moments.resize(moments.size() + moments.size() * at(layer.key_dim));
  const std::vector<std::vector<double>> dots = quadratic_forms(layer, upload(nullptr, 0, {}), moments);
  std::vector<std::vector<float>> cosines(at(n_kv_head()));
  for (std::size_t h = 0; h < cosines.size(); ++h) {
    for (std::size_t i = 0; i < dots[h].size(); ++i) {
      const auto length = static_cast<double>(keys.lengths[h * at(n_most_) + i]);
      cosines[h].push_back(static_cast<float>(dots[h][i] / std::max(length, kTinyLength)));
    }
  }
  return cosines;
}

std::vector<std::vector<float>> DeviceStatistics::norms(EntryNorm norm) {
  const bool is_of_keys = norm == EntryNorm::kStoredKeyL2 || norm == EntryNorm::kKeyL2;
  const Inputs inputs = upload(nullptr, 0, {});
  grow(layer_.device, layer_.memory.outputs, at(n_kv_head()) * at(n_most_) * sizeof(float));
  float* const out = layer_.memory.outputs.as<float>();
  layer_.device.queue(device::RowNorms{.layer = layer_.attention,
                                       .heads = inputs.heads,
                                       .n_most = n_most_,
                                       .stride = n_most_,
                                       .key_factors = norm == EntryNorm::kKeyL2 ? inputs.key_factors : nullptr,
                                       .key_l2 = is_of_keys ? out : nullptr,
                                       .value_l1 = norm == EntryNorm::kValueL1 ? out : nullptr,
                                       .value_l2 = norm == EntryNorm::kValueL2 ? out : nullptr});
  return download_of_entries();
}

std::optional<std::vector<std::vector<float>>> DeviceStatistics::projected_value_norms() {
  const Inputs inputs = upload(nullptr, 0, {});
  const ggml_tensor* w_o = layer_.w_o();
  const void* numbers = w_o->data;
  if (w_o->type != GGML_TYPE_BF16) {
    grow(layer_.device, layer_.memory.w_o, at(ggml_nelements(w_o)) * 2);
    layer_.device.dequantise_bf16(w_o->type, w_o->data, layer_.memory.w_o.data(), ggml_nelements(w_o));
    numbers = layer_.memory.w_o.data();
  }
  grow(layer_.device, layer_.memory.outputs, at(n_kv_head()) * at(n_most_) * sizeof(float));
  layer_.device.queue(device::ProjectedNorms{.layer = layer_.attention,
                                             .heads = inputs.heads,
                                             .n_most = n_most_,
                                             .stride = n_most_,
                                             .w_o = numbers,
                                             .n_embd = layer_.n_embd,
                                             .norms = layer_.memory.outputs.as<float>()});
  return download_of_entries();
}

RowAttention DeviceStatistics::attend(const StatisticsRows& rows, bool wants_out) {
  const std::size_t n_sums = at(rows.n_rows) * at(layer_.attention.n_head),
                    n_out = n_sums * at(layer_.attention.value_dim);
  RowAttention result{.out = std::vector<float>(wants_out ? n_out : 0), .log_sum_exp = std::vector<float>(n_sums)};
  const Inputs inputs = upload(rows.q, rows.n_rows, {});
  Layout layout;
  const std::size_t out_at = layout.take<float>(n_out), sums_at = layout.take<float>(n_sums);
  grow(layer_.device, layer_.memory.outputs, layout.bytes());
  auto* const out = reinterpret_cast<float*>(layer_.memory.outputs.data() + out_at);
  auto* const sums = reinterpret_cast<float*>(layer_.memory.outputs.data() + sums_at);
  layer_.device.queue(device::CausalAttention{.layer = layer_.attention,
                                              .q = inputs.q,
                                              .out = out,
                                              .log_sum_exp = sums,
                                              .heads = inputs.heads,
                                              .n_rows = rows.n_rows,
                                              .n_most = n_most_,
                                              .sees_all = true});
  if (wants_out) layer_.device.download(result.out.data(), out, n_out * sizeof(float));
  layer_.device.download(result.log_sum_exp.data(), sums, n_sums * sizeof(float));
  return result;
}

const std::vector<KeyOrigin>& DeviceStatistics::origins() {
  if (!origins_.empty()) return origins_;
  const SummedKeys keys = sum_keys(kPlainEntries, /*by_direction=*/false);
  std::vector<KeyOrigin> origins;
  for (std::size_t h = 0; h < keys.sums.size(); ++h) {
    const std::int32_t n = std::max(entries_.rows[h].n_entries - kPlainEntries, 1);
    std::vector<float> mean;
    for (const double x : keys.sums[h]) mean.push_back(static_cast<float>(x / n));
    if (!std::all_of(mean.begin(), mean.end(), [](float x) { return std::isfinite(x); })) mean.assign(mean.size(), 0);
    auto stored = std::make_shared<std::vector<std::byte>>(row_bytes(EntryType::kF16, layer_.attention.key_dim));
    kernels::store_row(EntryType::kF16, mean.data(), stored->data(), layer_.attention.key_dim);
    origins.push_back(std::move(stored));
  }
  origins_ = std::move(origins);
  return origins_;
}

EntryRows DeviceStatistics::rows(int head, std::span<const std::int32_t> entries) {
  const kernels::AttentionShape shape{.n_group = n_group(),
                                      .key_dim = layer_.attention.key_dim,
                                      .value_dim = layer_.attention.value_dim,
                                      .key_type = layer_.attention.key_type,
                                      .value_type = layer_.attention.value_type,
                                      .spec = {.scale = layer_.attention.scale}};
  std::vector<kernels::EntryRun> runs;
  kernels::RunCursor cursor(entries_.heads[at(head)]);
  for (const std::int32_t entry : entries) {
    const kernels::RunCursor::Piece piece = cursor.seek(entry);
    runs.push_back(kernels::part_of(*piece.run, piece.offset, 1, shape.key_dim, shape.value_dim));
  }
  const auto n = static_cast<std::int32_t>(entries.size());
  const EntryCopies copies(layer_.device.memory(), {.runs = runs, .n_entries = n}, shape.key_dim, shape.value_dim);
  return {.keys = load_rows(shape, copies.entries(), kernels::RowKind::kKey, n),
          .values = load_rows(shape, copies.entries(), kernels::RowKind::kValue, n)};
}

const float* DeviceStatistics::kept(std::int32_t first_row) const {
  if (entries_.pass == nullptr) throw Error(ErrorCode::kInternal, "queries were not kept on the device");
  return static_cast<const DevicePass*>(entries_.pass)->kept_queries(first_row);
}

const float* DeviceStatistics::kept_queries(std::int32_t first_row, int n_rows) {
  std::vector<float>& rows = queries_[first_row];
  const std::size_t n = at(n_rows) * at(layer_.attention.n_head) * at(layer_.attention.key_dim);
  if (rows.size() < n) {
    rows.resize(n);
    layer_.device.download(rows.data(), kept(first_row), n * sizeof(float));
  }
  return rows.data();
}

std::span<const ReconstructionPass> DeviceStatistics::copied_passes(std::span<const ReconstructionPass> passes) {
  passes_.assign(passes.begin(), passes.end());
  for (ReconstructionPass& pass : passes_) {
    if (pass.q == nullptr) pass.q = kept_queries(pass.first_row, pass.n_rows);
  }
  return passes_;
}

const float* DeviceStatistics::output_projection() {
  if (w_o_.empty()) w_o_ = layer_.output_projection();
  return w_o_.data();
}

std::vector<std::vector<float>> DeviceStatistics::download_of_entries() {
  const std::size_t stride = at(n_most_), n = at(n_kv_head()) * stride;
  layer_.memory.downloaded.resize(std::max(layer_.memory.downloaded.size(), n * sizeof(float)));
  if (n > 0) layer_.device.download(layer_.memory.downloaded.data(), layer_.memory.outputs.data(), n * sizeof(float));
  const auto* from = reinterpret_cast<const float*>(layer_.memory.downloaded.data());
  std::vector<std::vector<float>> norms;
  for (const HeadRows& head : entries_.rows) {
    norms.emplace_back(from, from + head.n_entries);
    from += stride;
  }
  return norms;
}

std::span<const kernels::HeadEntries> DeviceStatistics::host_heads() {
  std::call_once(copies_, [this] { copy_rows(); });
  return host_heads_;
}

void DeviceStatistics::copy_rows() {
  copied_.reserve(entries_.heads.size());
  for (const kernels::HeadEntries& head : entries_.heads) {
    copied_.emplace_back(layer_.device.memory(), head, layer_.attention.key_dim, layer_.attention.value_dim);
    host_heads_.push_back(copied_.back().entries());
  }
}

}  // namespace winnow
