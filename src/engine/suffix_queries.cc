#include "engine/suffix_queries.h"

#include <algorithm>

namespace winnow {

QueryCopies SuffixQueries::Rows::from(const LayerSpec& spec, std::int32_t row) {
  const auto of = [row](std::vector<float>& all, std::int64_t width) {
    return all.empty() ? nullptr : all.data() + row * width;
  };
  return {.q = of(q, spec.q_size()), .log_sum_exp = of(log_sum_exp, spec.n_head), .input_norm = of(input_norm, 1)};
}

SuffixQueries::SuffixQueries(const ModelSpec& spec, const RowSchedule& schedule, const ForwardPlan& plan,
                             bool executor_keeps_them)
    : spec_(spec),
      schedule_(schedule),
      first_layer_(plan.layers.first),
      n_together_(plan.n_together),
      n_tokens_(plan.n_tokens()),
      n_rows_(plan.n_rows()),
      executor_keeps_them_(executor_keeps_them) {
  if (!plan.repeat) return;
  replayed_.resize(n_together_ > 1 ? static_cast<std::size_t>(plan.layers.size()) : 1);
  const auto n = static_cast<std::size_t>(n_tokens_);
  for (int l = first_layer_; l < plan.layers.last && schedule_.replays(l); ++l) {
    const LayerSpec& layer = spec_.layer(l);
    if (layer.kind != LayerKind::kFullAttention) continue;
    Rows& rows = replayed(l);
    rows.q.resize(std::max(rows.q.size(), n * static_cast<std::size_t>(layer.q_size())));
    rows.log_sum_exp.resize(std::max(rows.log_sum_exp.size(), n * static_cast<std::size_t>(layer.n_head)));
  }
}

std::size_t SuffixQueries::replayed_bytes(const ModelSpec& spec, LayerRange layers, const LateRepeat& repeat,
                                          std::int32_t n_tokens) {
  std::size_t floats = 0;  // of one row
  for (int l = layers.first; l < std::min(layers.last, repeat.first_layer); ++l) {
    const LayerSpec& layer = spec.layer(l);
    if (layer.kind == LayerKind::kFullAttention) floats += static_cast<std::size_t>(layer.q_size() + layer.n_head);
  }
  return floats * static_cast<std::size_t>(n_tokens) * sizeof(float);
}

// Makes the suffixes' room when their first rows begin: by then the room for the prompt's may be free again.
void SuffixQueries::reserve() {
  std::size_t q_size = 0, n_head = 0;
  for (const LayerSpec& layer : spec_.layers) {
    q_size = std::max(q_size, static_cast<std::size_t>(layer.q_size()));
    n_head = std::max(n_head, static_cast<std::size_t>(layer.n_head));
  }
  const auto n = static_cast<std::size_t>(n_rows_ - n_tokens_);
  if (!executor_keeps_them_) suffixes_.q.resize(n * q_size);
  suffixes_.input_norm.resize(n);
  suffixes_.log_sum_exp.resize(n * n_head);
}

QueryCopies SuffixQueries::copies(int layer, const RowSchedule::Batch& batch) {
  const LayerSpec& spec = spec_.layer(layer);
  if (batch.is_suffix) {
    if (suffixes_.log_sum_exp.empty()) reserve();
    QueryCopies copies = suffixes_.from(spec, batch.rows.first_row - n_tokens_);
    if (batch.is_late) copies.input_norm = nullptr;
    return copies;
  }
  if (!schedule_.replays(layer) || spec.kind != LayerKind::kFullAttention) return {};
  return replayed(layer).from(spec, batch.rows.first_row);
}

std::vector<ReconstructionPass> SuffixQueries::whole_passes(int layer) {
  std::vector<ReconstructionPass> passes;
  for (const RowSchedule::Suffix& suffix : schedule_.suffixes()) {
    if (suffix.repeated) continue;
    const QueryCopies queries = suffixes_.from(spec_.layer(layer), suffix.first_row - n_tokens_);
    passes.push_back({.n_rows = suffix.n_rows,
                      .q = queries.q,
                      .log_sum_exp = queries.log_sum_exp,
                      .input_norm = queries.input_norm,
                      .first_row = suffix.first_row});
  }
  return passes;
}

std::vector<ReconstructionPass> SuffixQueries::late_passes(int layer) {
  const bool is_replayed = schedule_.replays(layer);
  Rows& rows = is_replayed ? replayed(layer) : suffixes_;
  const std::int32_t first_row = is_replayed ? schedule_.first_repeated() : n_tokens_;
  std::vector<ReconstructionPass> passes;
  for (const RowSchedule::Suffix& suffix : schedule_.suffixes()) {
    if (!suffix.repeated) continue;
    const QueryCopies queries = rows.from(spec_.layer(layer), suffix.first_row - first_row);
    passes.push_back({.n_rows = suffix.n_rows,
                      .q = queries.q,
                      .log_sum_exp = queries.log_sum_exp,
                      .first_row = suffix.first_row,
                      .near_first = suffix.repeated->near_first,
                      .near_end = suffix.repeated->near_end});
  }
  return passes;
}

bool SuffixQueries::has_suffixes(int layer) const {
  return std::ranges::any_of(schedule_.suffixes(), [&](const RowSchedule::Suffix& suffix) {
    return !suffix.repeated || !schedule_.replays(layer);
  });
}

}  // namespace winnow
