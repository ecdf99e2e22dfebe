#include "engine/forward_plan.h"

#include <algorithm>
#include <utility>

namespace winnow {
namespace {

// The batches of a sweep where weights are converted, or experts read, for the rows of a whole sweep.
constexpr std::size_t kSweepBatches = 4;

// Returns those of consecutive batches whose hidden states somebody reads after a layer. After the last one nobody
// reads suffixes, and mostly only the prompt's last row. A recurrence needs its rows.
std::span<const RowSchedule::Batch> read_batches(std::span<const RowSchedule::Batch> batches, const ForwardPlan& plan,
                                                 const ModelSpec& spec, int layer) {
  if (layer + 1 < spec.n_layer() || spec.layer(layer).kind == LayerKind::kRecurrent) return batches;
  const auto is_read = [&](const RowSchedule::Batch& batch) {
    if (batch.is_suffix) return false;
    return plan.reads_all_rows || batch.rows.first_row + batch.rows.n_rows == plan.n_tokens();
  };
  const auto first = std::find_if(batches.begin(), batches.end(), is_read);
  return {first, std::find_if_not(first, batches.end(), is_read)};
}

}  // namespace

std::int32_t ForwardPlan::n_rows() const {
  std::int32_t n = n_tokens() + (repeat ? n_tokens() : 0);
  for (const std::vector<Token>& suffix : suffixes) n += static_cast<std::int32_t>(suffix.size());
  return n;
}

RowSchedule::RowSchedule(const ForwardPlan& plan, const ModelSpec& spec, bool waits_for_weights)
    : n_batch_(plan.n_batch), repeat_(plan.repeat) {
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
  add_visits(plan, spec, make_sweeps(plan, waits_for_weights));
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

std::vector<RowSchedule::Sweep> RowSchedule::make_sweeps(const ForwardPlan& plan, bool waits_for_weights) const {
  const bool goes_layer_by_layer = plan.n_together == 1 && plan.layers.size() > 1;
  if (!plan.is_awaited || goes_layer_by_layer) return {{.first = 0, .last = batches_.size()}};
  const std::size_t n = waits_for_weights ? kSweepBatches : 1;
  std::vector<Sweep> sweeps;
  for (std::size_t first = 0; first < n_prompt_batches_; first += n) {
    sweeps.push_back({.first = first, .last = std::min(first + n, n_prompt_batches_)});
  }
  if (has_suffixes()) sweeps.push_back({.first = n_prompt_batches_, .last = batches_.size()});
  return sweeps;
}

void RowSchedule::add_visits(const ForwardPlan& plan, const ModelSpec& spec, std::span<const Sweep> sweeps) {
  n_sweeps_ = sweeps.size();
  for (int first = plan.layers.first; first < plan.layers.last; first += plan.n_together) {
    const int last = std::min(first + plan.n_together, plan.layers.last);
    for (const Sweep& sweep : sweeps) {
      bool begins_sweep = first == plan.layers.first;
      for (int l = first; l < last; ++l) {
        const std::span<const Batch> batches = batches_of(sweep, spec, l);
        if (batches.empty()) continue;
        visits_.push_back({.layer = l,
                           .batches = batches,
                           .read = read_batches(batches, plan, spec, l),
                           .begins_sweep = std::exchange(begins_sweep, false)});
      }
    }
  }
  std::vector<bool> is_ended(static_cast<std::size_t>(plan.layers.last));
  for (auto visit = visits_.rbegin(); visit != visits_.rend(); ++visit) {
    auto is_layer_ended = is_ended[static_cast<std::size_t>(visit->layer)];
    visit->ends_layer = !is_layer_ended;
    is_layer_ended = true;
  }
}

std::span<const RowSchedule::Batch> RowSchedule::batches_of(const Sweep& sweep, const ModelSpec& spec,
                                                            int layer) const {
  const bool is_shared = spec.layer(layer).kind == LayerKind::kSharedAttention;
  const std::size_t n = is_shared ? n_prompt_batches_ : replays(layer) ? n_early_batches_ : batches_.size();
  const std::size_t first = std::min(sweep.first, n), last = std::min(sweep.last, n);
  return std::span(batches_).subspan(first, last - first);
}

std::int64_t RowSchedule::work_total() const {
  std::int64_t n = 0;
  for (const Visit& visit : visits_) {
    for (const Batch& batch : visit.batches) n += batch.rows.n_rows;
  }
  return n;
}

}  // namespace winnow
