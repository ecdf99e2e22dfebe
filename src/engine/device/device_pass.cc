#include "engine/device/device_pass.h"

#include <ggml.h>

#include <algorithm>
#include <numeric>

#include "cache/page_rows.h"
#include "engine/device/device_executor.h"
#include "engine/device/pass_ops.h"
#include "winnow/error.h"

namespace winnow {

DevicePass::DevicePass(DeviceExecutor& executor, const PassPlan& plan)
    : executor_(executor),
      device_(executor.device()),
      plan_(plan),
      hidden_(device_.allocate(static_cast<std::size_t>(plan.n_rows) *
                               static_cast<std::size_t>(executor.model().spec.n_embd) * sizeof(float))) {}

float* DevicePass::row(std::int32_t r) const {
  return hidden_.as<float>() + std::int64_t{r} * executor_.model().spec.n_embd;
}

const LayerSpec& DevicePass::spec() const { return executor_.model().spec.layer(batch_.layer); }

void DevicePass::embed(std::int32_t first_row, std::span<const Token> tokens) {
  constexpr std::size_t kRows = 1024;  // bounds what waits in host memory
  const auto width = static_cast<std::size_t>(executor_.model().spec.n_embd);
  rows_.resize(std::min(kRows, tokens.size()) * width);
  for (std::size_t first = 0; first < tokens.size(); first += kRows) {
    const std::size_t n = std::min(kRows, tokens.size() - first);
    executor_.embed(tokens.subspan(first, n), rows_.data());
    device_.upload(row(first_row + static_cast<std::int32_t>(first)), rows_.data(), n * width * sizeof(float));
  }
}

void DevicePass::run_layer(const LayerPlan& plan) {
  batch_ = plan;
  const ModelSpec& model = executor_.model().spec;
  const auto at = static_cast<std::size_t>(plan.layer);
  const std::int32_t n_rows = plan.rows.n_rows;
  if (plan.copied_to >= 0) {
    const ByteCopy copy = {
        .to = reinterpret_cast<std::byte*>(row(plan.copied_to)),
        .from = reinterpret_cast<const std::byte*>(row(plan.rows.first_row)),
        .bytes = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(model.n_embd) * sizeof(float)};
    device_.memory()->copy({&copy, 1});
  }
  if (plan.copies.input_norm != nullptr) {
    grow(device_, sums_, static_cast<std::size_t>(n_rows) * sizeof(float));
    device_.queue(device::RowLengths{
        .rows = row(plan.rows.first_row), .lengths = sums_.as<float>(), .n = model.n_embd, .n_rows = n_rows});
    device_.download(plan.copies.input_norm, sums_.data(), static_cast<std::size_t>(n_rows) * sizeof(float));
  }
  plan_.entries->begin_rows(model.layers[at].kv_layer, plan.rows.first_position, n_rows);
  show_heads();
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n_rows));
  std::iota(positions.begin(), positions.end(), plan.rows.first_position);
  grow(device_, positions_, positions.size() * sizeof(std::int32_t));
  device_.upload(positions_.data(), positions.data(), positions.size() * sizeof(std::int32_t));

  const bool converts = executor_.converts_weights(plan_.n_converted) && executor_.weights().can_convert(plan.layer);
  const LayerWeights& weights =
      converts ? executor_.weights().converted(plan.layer) : executor_.weights().use(plan.layer);
  DeviceGraph& graph = executor_.graph();
  graph.reset();
  ggml_tensor* x = graph.external(GGML_TYPE_F32, model.n_embd, n_rows, row(plan.rows.first_row));
  GgmlOps as_stored;
  PassOps as_converted(device_, graph);
  LayerOps& ops = converts ? static_cast<LayerOps&>(as_converted) : as_stored;
  GraphBuilder builder(graph.context(), ops, *this, graph.external(GGML_TYPE_I32, n_rows, 1, positions_.data()));
  graph.expand(plan.is_output_read ? builder.layer(model.layers[at], weights, x)
                                   : builder.attention(model.layers[at], weights, x));
  graph.allocate();
  graph.run();
}

void DevicePass::show_heads() {
  const int n_heads = spec().n_kv_head;
  std::vector<PageRows> pages;
  std::vector<device::HeadTable> heads;
  std::vector<std::size_t> first_page;
  std::vector<HeadRows> all;
  for (int h = 0; h < n_heads; ++h) all.push_back(plan_.entries->head_rows(h));
  dequantised_.show(device_, all, spec().key_dim, spec().value_dim);
  n_most_ = 0;
  for (const HeadRows& rows : all) {
    first_page.push_back(pages.size());
    pages.insert(pages.end(), rows.pages.begin(), rows.pages.end());
    heads.push_back({.pages = nullptr, .first_slot = rows.first_slot, .n_entries = rows.n_entries});
    n_most_ = std::max(n_most_, rows.n_entries);
  }
  grow(device_, pages_, pages.size() * sizeof(PageRows));
  grow(device_, heads_, heads.size() * sizeof(device::HeadTable));
  for (std::size_t h = 0; h < heads.size(); ++h) heads[h].pages = pages_.as<PageRows>() + first_page[h];
  device_.upload(pages_.data(), pages.data(), pages.size() * sizeof(PageRows));
  device_.upload(heads_.data(), heads.data(), heads.size() * sizeof(device::HeadTable));
}

ggml_tensor* DevicePass::attend(ggml_context* /*context*/, int /*layer*/, ggml_tensor* q_unrotated, ggml_tensor* q,
                                ggml_tensor* k, ggml_tensor* v) {
  // Inputs are kept until the node's turn, so unrotated queries are one only where they are read.
  std::vector<ggml_tensor*> inputs = {q};
  if (k != nullptr) inputs.insert(inputs.end(), {k, v});
  if (!batch_.wants_moments()) q_unrotated = nullptr;
  if (q_unrotated != nullptr) inputs.push_back(q_unrotated);
  return executor_.graph().own(GGML_TYPE_F32, spec().output_size(), batch_.rows.n_rows, inputs,
                               [=, this](ggml_tensor* node) { attend_rows(q_unrotated, q, k, v, node); });
}

void DevicePass::attend_rows(const ggml_tensor* q_unrotated, const ggml_tensor* q, const ggml_tensor* k,
                             const ggml_tensor* v, const ggml_tensor* out) {
  const device::LayerAttention layer = executor_.attention(batch_.layer, plan_.entries->shape());
  const int n_rows = batch_.rows.n_rows;
  const auto* heads = heads_.as<device::HeadTable>();
  if (k != nullptr) {
    device_.queue(device::StoreRows{.layer = layer,
                                    .k = static_cast<const float*>(k->data),
                                    .v = static_cast<const float*>(v->data),
                                    .heads = heads,
                                    .n_rows = n_rows});
  }
  const bool wants_sums = batch_.wants_sums(batch_.rows.first_position);
  if (wants_sums) grow(device_, sums_, static_cast<std::size_t>(n_rows * spec().n_head) * sizeof(float));
  if (batch_.is_output_read || wants_sums) {
    device_.queue(device::CausalAttention{.layer = layer,
                                          .q = static_cast<const float*>(q->data),
                                          .out = static_cast<float*>(out->data),
                                          .log_sum_exp = wants_sums ? sums_.as<float>() : nullptr,
                                          .heads = heads,
                                          .n_rows = n_rows,
                                          .n_most = n_most_});
  }
  if (batch_.keeps_queries) keep_queries(static_cast<const float*>(q->data));
  record_queries(static_cast<const float*>(q->data));
  if (wants_sums) record_sums();
  if (q_unrotated != nullptr) record_moments(static_cast<const float*>(q_unrotated->data));
}

const float* DevicePass::kept_queries(std::int32_t first_row) const {
  return kept_.as<float>() + std::int64_t{first_row - first_kept_} * spec().q_size();
}

// A layer's batches come in the order of their rows. Of some layers only the suffixes are kept, of later ones the
// prompt, too.
void DevicePass::keep_queries(const float* q) {
  if (!kept_ || batch_.rows.first_row < first_kept_) {
    std::int64_t most = 0;
    for (const LayerSpec& layer : executor_.model().spec.layers) most = std::max<std::int64_t>(most, layer.q_size());
    device_.wait();  // for what reads the layer before
    kept_ = {};
    first_kept_ = batch_.rows.first_row;
    kept_ = device_.allocate(static_cast<std::size_t>((plan_.n_rows - first_kept_) * most) * sizeof(float));
  }
  const ByteCopy copy = {.to = kept_.data() + static_cast<std::size_t>(batch_.rows.first_row - first_kept_) *
                                                  static_cast<std::size_t>(spec().q_size()) * sizeof(float),
                         .from = reinterpret_cast<const std::byte*>(q),
                         .bytes = static_cast<std::size_t>(batch_.rows.n_rows) *
                                  static_cast<std::size_t>(spec().q_size()) * sizeof(float)};
  device_.memory()->copy({&copy, 1});
}

// Queues a copy of some of the present layer's query rows, given ascending, to one piece, and returns where that lies.
const float* DevicePass::gather(const float* q, std::span<const std::int32_t> rows) {
  const std::size_t bytes = static_cast<std::size_t>(spec().q_size()) * sizeof(float);
  grow(device_, gathered_, rows.size() * bytes);
  std::vector<ByteCopy> copies;
  add_gathered_rows(gathered_.data(), reinterpret_cast<const std::byte*>(q), bytes, rows, copies);
  device_.memory()->copy(copies);
  return gathered_.as<float>();
}

// Only the rows that somebody wants come from the device, in one piece.
void DevicePass::record_queries(const float* q) {
  const std::int32_t first = batch_.rows.first_position, n_rows = batch_.rows.n_rows, end = batch_.recorded_end;
  const auto width = static_cast<std::size_t>(spec().q_size());
  std::vector<std::int32_t> wanted;
  for (std::int32_t r = 0; r < n_rows; ++r) {
    if (batch_.copies.q != nullptr ||
        std::any_of(batch_.recorders.begin(), batch_.recorders.end(),
                    [&](const QueryEvidence* e) { return e->wants_row(batch_.layer, first + r, end); })) {
      wanted.push_back(r);
    }
  }
  if (wanted.empty()) return;
  rows_.resize(wanted.size() * width);
  const bool has_gaps = wanted.back() - wanted.front() >= static_cast<std::int32_t>(wanted.size());
  const float* rows = has_gaps ? gather(q, wanted) : q + static_cast<std::size_t>(wanted.front()) * width;
  device_.download(rows_.data(), rows, rows_.size() * sizeof(float));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const float* from = rows_.data() + i * width;
    for (QueryEvidence* evidence : batch_.recorders) evidence->record(batch_.layer, first + wanted[i], end, from);
    if (batch_.copies.q != nullptr) {
      std::copy_n(from, width, batch_.copies.q + static_cast<std::size_t>(wanted[i]) * width);
    }
  }
}

void DevicePass::record_sums() {
  const std::int32_t n_rows = batch_.rows.n_rows;
  const auto width = static_cast<std::size_t>(spec().n_head);
  rows_.resize(static_cast<std::size_t>(n_rows) * width);
  device_.download(rows_.data(), sums_.data(), rows_.size() * sizeof(float));
  if (batch_.copies.log_sum_exp != nullptr) std::copy(rows_.begin(), rows_.end(), batch_.copies.log_sum_exp);
  for (QueryEvidence* evidence : batch_.recorders) {
    for (std::int32_t r = 0; r < n_rows; ++r) {
      float* to = evidence->log_sum_exp_row(batch_.layer, batch_.rows.first_position + r);
      if (to != nullptr) std::copy_n(rows_.data() + static_cast<std::size_t>(r) * width, width, to);
    }
  }
}

// A layer's sums stay on the device until its rows are through, or until another layer's rows come between them.
// Recorders that leave out the same rows have the same sums.
void DevicePass::record_moments(const float* q_unrotated) {
  if (batch_.layer != moments_layer_) take_moments();
  moments_layer_ = batch_.layer;
  const std::int64_t width = spec().q_size();
  const std::int32_t end = batch_.rows.first_position + batch_.rows.n_rows;
  for (const QueryEvidence* evidence : batch_.recorders) {
    if (!evidence->wants_moments(batch_.layer)) continue;
    const std::int32_t skip = evidence->needs().moments_skip;
    auto sums = std::find_if(moments_.begin(), moments_.end(), [&](const MomentSums& m) { return m.skip == skip; });
    if (sums == moments_.end()) sums = moments_.insert(moments_.end(), MomentSums{.skip = skip});
    const std::int32_t skipped = evidence->rows_before_moments(batch_.rows.first_position, batch_.rows.n_rows);
    if (sums->end == end || skipped == batch_.rows.n_rows) continue;
    grow(device_, sums->sums, static_cast<std::size_t>(width + width * spec().key_dim) * sizeof(double));
    device_.queue(device::QueryMoments{.q = q_unrotated + skipped * width,
                                       .n_rows = batch_.rows.n_rows - skipped,
                                       .n_head = spec().n_head,
                                       .key_dim = spec().key_dim,
                                       .adds = sums->n > 0,
                                       .sum = sums->sums.as<double>(),
                                       .outer = sums->sums.as<double>() + width});
    sums->n += batch_.rows.n_rows - skipped;
    sums->end = end;
  }
  if (end == batch_.recorded_end) take_moments();
}

void DevicePass::take_moments() {
  for (MomentSums& sums : moments_) {
    if (sums.n == 0) continue;
    const LayerSpec& layer = executor_.model().spec.layer(moments_layer_);
    const auto n_sums = static_cast<std::size_t>(layer.q_size());
    std::vector<double> doubles(n_sums + n_sums * static_cast<std::size_t>(layer.key_dim));
    device_.download(doubles.data(), sums.sums.data(), doubles.size() * sizeof(double));
    const std::span<const double> all = doubles;
    for (QueryEvidence* evidence : batch_.recorders) {
      if (!evidence->wants_moments(moments_layer_) || evidence->needs().moments_skip != sums.skip) continue;
      evidence->add_moment_sums(moments_layer_, sums.n, all.first(n_sums), all.subspan(n_sums));
    }
    sums.n = sums.end = 0;
  }
}

ggml_tensor* DevicePass::recur(ggml_context* /*context*/, int /*layer*/, RecurrentStep /*step*/,
                               std::span<ggml_tensor* const> /*inputs*/) {
  throw Error(ErrorCode::kInternal, "a device got a recurrent layer");
}

}  // namespace winnow
