#include "engine/forward_plan.h"

#include <algorithm>

namespace winnow {
namespace {

// The batches of a sweep where weights are converted, or experts read, for the rows of a whole sweep.
constexpr std::size_t kSweepBatches = 4;

}  // namespace

std::int32_t ForwardPlan::n_rows() const {
  std::int32_t n = n_tokens() + (repeat ? n_tokens() : 0);
  for (const std::vector<Token>& suffix : suffixes) n += static_cast<std::int32_t>(suffix.size());
  return n;
}

RowSchedule::RowSchedule(const ForwardPlan& plan, const ModelSpec& spec, bool waits_for_weights)
    : spec_(spec), layers_(plan.layers), n_together_(plan.n_together), n_batch_(plan.n_batch), repeat_(plan.repeat) {
  const std::int32_t n_tokens = plan.n_tokens();
  add_part(0, n_tokens, plan.first_position, {});
  n_prompt_batches_ = batches_.size();
  std::int32_t first_row = n_tokens;
  for (const std::vector<Token>& suffix : plan.suffixes) {
    const auto n = static_cast<std::int32_t>(suffix.size());
    add_part(first_row, n, plan.first_position + n_tokens, {.is_suffix = true});
    first_row += n;
  }
  n_early_batches_ = batches_.size();
  first_repeated_ = first_row;
  for (std::int32_t first = 0; repeat_ && first < n_tokens; first += repeat_->n_part) {
    add_part(first_repeated_ + first, std::min(repeat_->n_part, n_tokens - first), plan.first_position + n_tokens,
             {.is_suffix = true, .is_late = true});
    const std::int32_t end = first + suffixes_.back().n_rows;
    suffixes_.back().repeated = {.first = plan.first_position + first,
                                 .end = plan.first_position + end,
                                 .near_first = plan.first_position + std::max(first - repeat_->n_near, 0),
                                 .near_end = plan.first_position + std::min(end + repeat_->n_near, n_tokens)};
  }
  sweeps_ = make_sweeps(plan.is_awaited, waits_for_weights);
}

void RowSchedule::add_part(std::int32_t first_row, std::int32_t n_rows, std::int32_t first_position,
                           const Batch& kind) {
  for (std::int32_t first = 0; first < n_rows; first += n_batch_) {
    Batch& batch = batches_.emplace_back(kind);
    batch.rows = {.first_row = first_row + first,
                  .n_rows = std::min(n_batch_, n_rows - first),
                  .first_position = first_position + first};
    batch.begins_part = first == 0;
  }
  if (kind.is_suffix) suffixes_.push_back({.first_row = first_row, .n_rows = n_rows});
}

std::vector<RepeatedPart> RowSchedule::repeated_parts() const {
  std::vector<RepeatedPart> parts;
  for (const Suffix& suffix : suffixes_) {
    if (suffix.repeated) parts.push_back(*suffix.repeated);
  }
  return parts;
}

std::optional<RepeatedPart> RowSchedule::begun_part(const Batch& batch) const {
  if (!batch.is_late || !batch.begins_part) return std::nullopt;
  const auto is_begun = [&](const Suffix& suffix) { return suffix.first_row == batch.rows.first_row; };
  return std::find_if(suffixes_.begin(), suffixes_.end(), is_begun)->repeated;
}

std::vector<RowSchedule::Sweep> RowSchedule::make_sweeps(bool is_awaited, bool waits_for_weights) const {
  if (!is_awaited || (n_together_ == 1 && layers_.size() > 1)) return {{.first = 0, .last = batches_.size()}};
  const std::size_t n = waits_for_weights ? kSweepBatches : 1;
  std::vector<Sweep> sweeps;
  for (std::size_t first = 0; first < n_prompt_batches_; first += n) {
    sweeps.push_back({.first = first, .last = std::min(first + n, n_prompt_batches_)});
  }
  if (has_suffixes()) sweeps.push_back({.first = n_prompt_batches_, .last = batches_.size()});
  return sweeps;
}

std::span<const RowSchedule::Batch> RowSchedule::batches_of(const Sweep& sweep, int layer) const {
  const bool is_shared = spec_.layer(layer).kind == LayerKind::kSharedAttention;
  const std::size_t n = is_shared ? n_prompt_batches_ : replays(layer) ? n_early_batches_ : batches_.size();
  const std::size_t first = std::min(sweep.first, n), last = std::min(sweep.last, n);
  return std::span(batches_).subspan(first, last - first);
}

bool RowSchedule::ends_layer(const Sweep& sweep, int layer) const {
  return std::all_of(sweeps_.begin() + (&sweep - sweeps_.data()) + 1, sweeps_.end(),
                     [&](const Sweep& later) { return batches_of(later, layer).empty(); });
}

std::int64_t RowSchedule::work_total() const {
  std::int64_t n = 0;
  for (int l = layers_.first; l < layers_.last; ++l) {
    for (const Batch& batch : batches_of({.first = 0, .last = batches_.size()}, l)) n += batch.rows.n_rows;
  }
  return n;
}

}  // namespace winnow
