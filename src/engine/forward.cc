#include "engine/forward.h"

#include <algorithm>

#include "base/stopwatch.h"

namespace winnow {

// Runs the whole forward pass. Each co_yield is a place where the caller may report progress, stop, or compute for
// somebody else; when a layer has ended, its caller scores and evicts the layer's entries (LayerPrefill::end_layer).
Coroutine<ForwardPass::Step> ForwardPass::run() {
  for (const Visit& visit : schedule_.visits()) {
    const bool is_split = has_experts(visit.layer) && rows_->splits_experts();
    for (const Batch& batch : visit.batches) {
      Step next = step_of(visit, std::span(&batch, 1));
      next.begins_sweep = visit.begins_sweep && &batch == &visit.batches.front();
      next.begun_part = schedule_.begun_part(batch);
      co_yield next;
      const LayerPlan plan = layer_plan(visit, batch);
      if (is_split && plan.is_output_read) {
        rows_->run_attention_and_router(plan);
      } else {
        rows_->run_layer(plan);  // norm, Q K V, RoPE, store, attention, W_O, residual, feed-forward
      }
      work_done_ += batch.rows.n_rows;
    }
    if (is_split && !visit.read.empty()) {
      const RowBatch &front = visit.read.front().rows, &back = visit.read.back().rows;
      rows_->begin_experts({.layer = visit.layer,
                            .first_row = front.first_row,
                            .n_rows = back.first_row + back.n_rows - front.first_row});
      for (bool more = true; more;) {
        co_yield step_of(visit, visit.read);
        more = rows_->run_experts();
      }
      for (const Batch& batch : visit.read) {
        co_yield step_of(visit, std::span(&batch, 1));
        rows_->combine_experts({.layer = visit.layer, .rows = batch.rows});
      }
    }
    if (visit.ends_layer) ended_ = visit.layer;
  }
}

std::optional<int> ForwardPass::step() {
  const Stopwatch watch;
  const double suffix_share = steps_.value().suffix_share;
  steps_.next();
  suffix_s_ += suffix_share * watch.seconds();
  return std::exchange(ended_, std::nullopt);
}

namespace {

// All layers are asked, so that every rank takes the same sweeps.
bool has_any_experts(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const LayerSpec& layer) { return layer.feed_forward.n_expert > 0; });
}

std::int32_t rows_to_convert_for(const ForwardPlan& plan) {
  return plan.n_converted > 0 ? plan.n_converted : plan.n_rows();
}

}  // namespace

ForwardPass::ForwardPass(Executor& executor, const ModelSpec& spec, const ForwardPlan& plan, EntrySink& sink,
                         RecurrentState& state, std::vector<QueryEvidence*> recorders)
    : executor_(executor),
      spec_(spec),
      layers_(plan.layers),
      n_together_(plan.n_together),
      n_tokens_(plan.n_tokens()),
      first_position_(plan.first_position),
      schedule_(plan, spec, has_any_experts(spec) || executor.converts_weights(rows_to_convert_for(plan))),
      queries_(spec, schedule_, plan, executor.keeps_queries()),
      recorders_(std::move(recorders)),
      state_(state),
      rows_(executor.begin_pass(
          {.layers = layers_, .n_rows = plan.n_rows(), .n_converted = rows_to_convert_for(plan), .entries = &sink})),
      steps_(run()) {
  rows_->embed(0, plan.tokens);
  std::int32_t first_row = n_tokens_;
  for (const std::vector<Token>& suffix : plan.suffixes) {
    rows_->embed(first_row, suffix);
    first_row += static_cast<std::int32_t>(suffix.size());
  }
  if (plan.repeat) rows_->embed(first_row, plan.tokens);
  steps_.next();  // to the first step
}

ForwardPass::Step ForwardPass::step_of(const Visit& visit, std::span<const Batch> batches) {
  std::int32_t n_rows = 0, n_suffix_rows = 0;
  for (const Batch& batch : batches) {
    n_rows += batch.rows.n_rows;
    n_suffix_rows += batch.is_suffix ? batch.rows.n_rows : 0;
  }
  return {.layer = visit.layer,
          .is_of_suffixes = visit.is_of_suffixes(),
          .suffix_share = static_cast<double>(n_suffix_rows) / n_rows};
}

bool ForwardPass::leaves_rows(int layer) const {
  return std::any_of(recorders_.begin(), recorders_.end(),
                     [&](const QueryEvidence* recorder) { return recorder->leaves_rows(layer); });
}

LayerPlan ForwardPass::layer_plan(const Visit& visit, const Batch& batch) {
  const int layer = visit.layer;
  LayerPlan plan{.layer = layer, .rows = batch.rows, .is_output_read = visit.reads(batch)};
  if (spec_.layer(layer).kind == LayerKind::kRecurrent) {
    plan.state = state_of(layer, batch);
  } else {
    plan.copies = queries_.copies(layer, batch);
    plan.keeps_queries = batch.is_suffix ? executor_.keeps_queries() : leaves_rows(layer);
    if (!batch.is_suffix) {
      plan.recorders = recorders_;
      plan.recorded_end = first_position_ + n_tokens_;
    }
  }
  const bool begins_repeat = schedule_.begins_repeat(layer);
  if (begins_repeat && !batch.is_suffix) {
    if (n_together_ == 1) queries_.free_replayed();  // the layers before are through
    plan.copied_to = schedule_.first_repeated() + batch.rows.first_row;
  }
  plan.begins_here = batch.is_late && begins_repeat;
  return plan;
}

// Returns the state that a batch reads and writes. A suffix goes on from the prompt's state in memory of its own.
RecurrentState::Update ForwardPass::state_of(int layer, const Batch& batch) {
  if (!batch.is_suffix) return state_.update(layer);
  const std::span<const float> latest = state_.latest(layer);
  suffix_state_.resize(latest.size());
  return {.from = batch.begins_part ? latest.data() : suffix_state_.data(), .to = suffix_state_.data()};
}

std::vector<float> ForwardPass::read_logits(const LogitsCallback& on_logits) {
  const auto n_vocab = static_cast<std::size_t>(spec_.n_vocab);
  std::vector<float> last(n_vocab);
  if (!on_logits) {
    executor_.output_logits(row(n_tokens_ - 1), 1, last.data());
    return last;
  }
  read_rows(&Executor::output_logits, n_vocab, [&](std::int32_t position, std::span<const float> logits) {
    on_logits(position, logits);
    if (position == first_position_ + n_tokens_ - 1) std::copy(logits.begin(), logits.end(), last.begin());
  });
  return last;
}

void ForwardPass::read_hidden(const HiddenCallback& on_hidden) {
  read_rows(&Executor::output_hidden, static_cast<std::size_t>(spec_.n_embd), on_hidden);
}

void ForwardPass::read_rows(Output output, std::size_t width,
                            const std::function<void(std::int32_t position, std::span<const float>)>& on_row) {
  constexpr std::int32_t kRows = 32;  // the logits of a large vocabulary take megabytes a row
  std::vector<float> rows(kRows * width);
  for (std::int32_t first = 0; first < n_tokens_; first += kRows) {
    const std::int32_t n_rows = std::min(kRows, n_tokens_ - first);
    (executor_.*output)(row(first), n_rows, rows.data());
    for (std::int32_t r = 0; r < n_rows; ++r) {
      on_row(first_position_ + first + r,
             std::span<const float>(rows).subspan(static_cast<std::size_t>(r) * width, width));
    }
  }
}

}  // namespace winnow
