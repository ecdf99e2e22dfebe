#include "engine/forward.h"

#include <algorithm>
#include <chrono>

namespace winnow {

// Runs the whole forward pass. Each co_yield is a place where the caller may report progress, stop, or compute for
// somebody else; when a layer has ended, its caller scores and evicts the layer's entries (LayerPrefill::end_layer).
Coroutine<ForwardPass::Step> ForwardPass::run() {
  for (int first = layers_.first; first < layers_.last; first += n_together_) {
    const int last = std::min(first + n_together_, layers_.last);
    for (const Sweep& sweep : sweeps_) {
      bool begins_sweep = first == layers_.first;
      for (int l = first; l < last; ++l) {
        const std::span<const Batch> batches = batches_of(sweep, l);
        if (batches.empty()) continue;
        for (const Batch& batch : batches) {
          const Step next = next_step(l, sweep, std::span(&batch, 1), std::exchange(begins_sweep, false));
          co_yield next;
          const LayerPlan plan = layer_plan(l, batch);
          if (has_experts(l)) {
            rows_->run_attention_and_router(plan);
          } else {
            rows_->run_layer(plan);  // norm, Q K V, RoPE, store, attention, W_O, residual, feed-forward
          }
          work_done_ += batch.rows.n_rows;
        }
        if (has_experts(l)) {
          const RowBatch &front = batches.front().rows, &back = batches.back().rows;
          rows_->begin_experts(
              {.layer = l, .first_row = front.first_row, .n_rows = back.first_row + back.n_rows - front.first_row});
          const Step experts = next_step(l, sweep, batches, false);
          for (bool more = true; more;) {
            co_yield experts;
            more = rows_->run_experts();
          }
          for (const Batch& batch : batches) {
            const Step next = next_step(l, sweep, std::span(&batch, 1), false);
            co_yield next;
            rows_->combine_experts({.layer = l, .rows = batch.rows});
          }
        }
        if (ends_layer(sweep, l)) ended_ = l;
      }
    }
  }
}

std::optional<int> ForwardPass::step() {
  const auto start = std::chrono::steady_clock::now();
  const double suffix_share = steps_.value().suffix_share;
  steps_.next();
  suffix_s_ += suffix_share * std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::exchange(ended_, std::nullopt);
}

namespace {

// The batches of a sweep where weights are converted, or experts read, for the rows of a whole sweep.
constexpr std::size_t kSweepBatches = 4;

// Returns the number of tokens of all parts.
std::int32_t count(std::span<const std::vector<Token>> parts) {
  std::size_t n = 0;
  for (const std::vector<Token>& part : parts) n += part.size();
  return static_cast<std::int32_t>(n);
}

}  // namespace

ForwardPass::ForwardPass(Executor& executor, const ModelSpec& spec, const ForwardPlan& plan, EntrySink& sink,
                         RecurrentState& state, std::vector<QueryEvidence*> recorders)
    : executor_(executor),
      spec_(spec),
      layers_(plan.layers),
      n_together_(plan.n_together),
      n_tokens_(static_cast<std::int32_t>(plan.tokens.size())),
      first_position_(plan.first_position),
      n_rows_(n_tokens_ + count(plan.suffixes) + (plan.repeat ? n_tokens_ : 0)),
      recorders_(std::move(recorders)),
      state_(state),
      repeat_(plan.repeat),
      steps_(run()) {
  const std::int32_t n_converted = plan.n_converted > 0 ? plan.n_converted : n_rows_;
  rows_ = executor.begin_pass({.layers = layers_, .n_rows = n_rows_, .n_converted = n_converted, .entries = &sink});
  add_part(0, plan.tokens, first_position_, false, plan.n_batch);
  n_prompt_batches_ = batches_.size();
  std::int32_t first_row = n_tokens_;
  for (const std::vector<Token>& suffix : plan.suffixes) {
    add_part(first_row, suffix, first_position_ + n_tokens_, true, plan.n_batch);
    first_row += static_cast<std::int32_t>(suffix.size());
  }
  n_early_batches_ = batches_.size();
  first_repeated_ = first_row;
  for (std::int32_t first = 0; repeat_ && first < n_tokens_; first += repeat_->n_part) {
    const std::int32_t n = std::min(repeat_->n_part, n_tokens_ - first);
    add_part(first_repeated_ + first, plan.tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n)),
             first_position_ + n_tokens_, true, plan.n_batch, true);
  }
  reserve_replayed();
  // All layers are asked, so that every rank takes the same sweeps.
  const bool has_any_experts = std::any_of(spec.layers.begin(), spec.layers.end(),
                                           [](const LayerSpec& layer) { return layer.feed_forward.n_expert > 0; });
  sweeps_ = sweeps(plan.is_awaited, has_any_experts || executor.converts_weights(n_converted));
  steps_.next();  // to the first step
}

void ForwardPass::add_part(std::int32_t first_row, std::span<const Token> tokens, std::int32_t first_position,
                           bool is_suffix, std::int32_t n_batch, bool is_late) {
  rows_->embed(first_row, tokens);
  const auto n = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t first = 0; first < n; first += n_batch) {
    batches_.push_back({.rows = {.first_row = first_row + first,
                                 .n_rows = std::min(n_batch, n - first),
                                 .first_position = first_position + first},
                        .is_suffix = is_suffix,
                        .begins_part = first == 0,
                        .is_late = is_late});
  }
  if (is_suffix) suffixes_.push_back({.first_row = first_row, .n_rows = n, .is_late = is_late});
}

std::vector<ForwardPass::Sweep> ForwardPass::sweeps(bool is_awaited, bool waits_for_weights) const {
  if (!is_awaited || (n_together_ == 1 && layers_.size() > 1)) return {{.first = 0, .last = batches_.size()}};
  const std::size_t n = waits_for_weights ? kSweepBatches : 1;
  std::vector<Sweep> sweeps;
  for (std::size_t first = 0; first < n_prompt_batches_; first += n) {
    sweeps.push_back({.first = first, .last = std::min(first + n, n_prompt_batches_)});
  }
  if (n_prompt_batches_ < batches_.size()) sweeps.push_back({.first = n_prompt_batches_, .last = batches_.size()});
  return sweeps;
}

void ForwardPass::reserve_replayed() {
  if (!repeat_) return;
  replayed_.resize(n_together_ > 1 ? static_cast<std::size_t>(layers_.size()) : 1);
  const auto n = static_cast<std::size_t>(n_tokens_);
  for (int l = layers_.first; l < layers_.last && replays(l); ++l) {
    const LayerSpec& spec = layer_spec(l);
    if (spec.kind != LayerKind::kFullAttention) continue;
    Queries& queries = replayed(l);
    queries.q.resize(std::max(queries.q.size(), n * static_cast<std::size_t>(spec.q_size())));
    queries.log_sum_exp.resize(std::max(queries.log_sum_exp.size(), n * static_cast<std::size_t>(spec.n_head)));
  }
}

std::size_t ForwardPass::replayed_bytes(const ModelSpec& spec, LayerRange layers, const LateRepeat& repeat,
                                        std::int32_t n_tokens) {
  std::size_t floats = 0;  // of one row
  for (int l = layers.first; l < std::min(layers.last, repeat.first_layer); ++l) {
    const LayerSpec& layer = spec.layers[static_cast<std::size_t>(l)];
    if (layer.kind == LayerKind::kFullAttention) floats += static_cast<std::size_t>(layer.q_size() + layer.n_head);
  }
  return floats * static_cast<std::size_t>(n_tokens) * sizeof(float);
}

bool ForwardPass::ends_layer(const Sweep& sweep, int layer) const {
  return std::all_of(sweeps_.begin() + (&sweep - sweeps_.data()) + 1, sweeps_.end(),
                     [&](const Sweep& later) { return batches_of(later, layer).empty(); });
}

// Returns a layer's batches of a sweep. Suffixes end before the layers that attend to another's entries: their own are
// no longer there.
std::span<const ForwardPass::Batch> ForwardPass::batches_of(const Sweep& sweep, int layer) const {
  const bool is_shared = layer_spec(layer).kind == LayerKind::kSharedAttention;
  const std::size_t n = is_shared ? n_prompt_batches_ : replays(layer) ? n_early_batches_ : batches_.size();
  const std::size_t first = std::min(sweep.first, n), last = std::min(sweep.last, n);
  return std::span(batches_).subspan(first, last - first);
}

std::int64_t ForwardPass::work_total() const {
  std::int64_t n = 0;
  for (int l = layers_.first; l < layers_.last; ++l) {
    for (const Batch& batch : batches_of({.first = 0, .last = batches_.size()}, l)) n += batch.rows.n_rows;
  }
  return n;
}

ForwardPass::Step ForwardPass::next_step(int layer, const Sweep& sweep, std::span<const Batch> batches,
                                         bool begins_sweep) const {
  std::int32_t n_rows = 0, n_suffix_rows = 0;
  for (const Batch& batch : batches) {
    n_rows += batch.rows.n_rows;
    n_suffix_rows += batch.is_suffix ? batch.rows.n_rows : 0;
  }
  return {.layer = layer,
          .begins_sweep = begins_sweep,
          .is_of_suffixes = sweep.first > 0 && sweep.first == n_prompt_batches_,
          .suffix_share = static_cast<double>(n_suffix_rows) / n_rows};
}

// Makes the room when the first suffix's rows begin: by then the room for the prompt's may be free again.
QueryCopies ForwardPass::suffix_copies(const LayerSpec& spec, std::int32_t first_row) {
  if (suffix_queries_.log_sum_exp.empty()) {
    std::size_t q_size = 0, n_head = 0;
    for (const LayerSpec& layer : spec_.layers) {
      q_size = std::max(q_size, static_cast<std::size_t>(layer.q_size()));
      n_head = std::max(n_head, static_cast<std::size_t>(layer.n_head));
    }
    const auto n = static_cast<std::size_t>(n_rows_ - n_tokens_);
    if (!executor_.keeps_queries()) suffix_queries_.q.resize(n * q_size);
    suffix_queries_.input_norm.resize(n);
    suffix_queries_.log_sum_exp.resize(n * n_head);
  }
  return suffix_queries_.from(spec, first_row);
}

LayerPlan ForwardPass::layer_plan(int layer, const Batch& batch) {
  LayerPlan plan{.layer = layer, .rows = batch.rows};
  const LayerSpec& spec = layer_spec(layer);
  if (spec.kind == LayerKind::kRecurrent) {
    plan.state = state_of(layer, batch);
  } else if (batch.is_suffix) {
    plan.keeps_queries = executor_.keeps_queries();
    plan.copies = suffix_copies(spec, batch.rows.first_row - n_tokens_);
  } else {
    plan.recorders = recorders_;
    plan.recorded_end = first_position_ + n_tokens_;
    plan.keeps_queries = std::any_of(recorders_.begin(), recorders_.end(),
                                     [&](const QueryEvidence* e) { return e->leaves_rows(layer); });
    if (replays(layer) && spec.kind == LayerKind::kFullAttention) {
      plan.copies = replayed(layer).from(spec, batch.rows.first_row);
    }
  }
  if (repeat_ && layer == repeat_->first_layer && !batch.is_suffix) {
    if (n_together_ == 1) replayed_.clear();  // the layers before are through
    plan.copied_to = first_repeated_ + batch.rows.first_row;
  }
  plan.begins_here = batch.is_late && layer == repeat_->first_layer;
  return plan;
}

// Returns the state that a batch reads and writes. A suffix goes on from the prompt's state in memory of its own.
RecurrentState::Update ForwardPass::state_of(int layer, const Batch& batch) {
  if (!batch.is_suffix) return state_.update(layer);
  const std::span<const float> latest = state_.latest(layer);
  suffix_state_.resize(latest.size());
  return {.from = batch.begins_part ? latest.data() : suffix_state_.data(), .to = suffix_state_.data()};
}

QueryCopies ForwardPass::Queries::from(const LayerSpec& spec, std::int32_t row) {
  const auto of = [row](std::vector<float>& all, std::int64_t width) {
    return all.empty() ? nullptr : all.data() + row * width;
  };
  return {.q = of(q, spec.q_size()), .log_sum_exp = of(log_sum_exp, spec.n_head), .input_norm = of(input_norm, 1)};
}

std::vector<ReconstructionPass> ForwardPass::passes(int layer, bool is_late) {
  const LayerSpec& spec = layer_spec(layer);
  const bool is_replayed = is_late && replays(layer);
  std::vector<ReconstructionPass> passes;
  for (const Suffix& suffix : suffixes_) {
    if (suffix.is_late != is_late) continue;
    const QueryCopies queries = is_replayed ? replayed(layer).from(spec, suffix.first_row - first_repeated_)
                                            : suffix_queries_.from(spec, suffix.first_row - n_tokens_);
    passes.push_back({.n_rows = suffix.n_rows,
                      .q = queries.q,
                      .log_sum_exp = queries.log_sum_exp,
                      .input_norm = queries.input_norm,
                      .first_row = suffix.first_row});
  }
  return passes;
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
