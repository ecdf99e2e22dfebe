#include "engine/cpu/expert_pass.h"

#include <ggml.h>

#include <algorithm>

#include "engine/cpu/cpu_executor.h"

namespace winnow {
namespace {

// Returns the largest number of experts that a row takes in any layer.
int most_used(const ModelSpec& spec) {
  int n = 0;
  for (const LayerSpec& layer : spec.layers) n = std::max(n, layer.feed_forward.n_expert_used);
  return n;
}

// Returns the bytes that experts need for each row: ModelInfo::hidden_bytes_per_token without the hidden state.
std::size_t bytes_per_row(const Model::Impl& model) {
  return model.info.hidden_bytes_per_token() - static_cast<std::size_t>(model.spec.n_embd) * sizeof(float);
}

}  // namespace

bool ExpertPass::is_needed(const ModelSpec& spec) { return most_used(spec) > 0; }

ExpertPass::ExpertPass(CpuExecutor& executor, float* hidden, std::int32_t n_rows)
    : executor_(executor),
      hidden_(hidden),
      n_embd_(executor.model().spec.n_embd),
      n_rows_(n_rows),
      n_used_(most_used(executor.model().spec)),
      memory_(static_cast<std::size_t>(n_rows) * bytes_per_row(executor.model())),
      sums_(reinterpret_cast<float*>(memory_.data())),
      routing_weights_(sums_ + n_rows_ * n_embd_),
      chosen_(reinterpret_cast<std::int32_t*>(routing_weights_ + n_rows_ * n_used_)),
      slot_weights_(reinterpret_cast<float*>(chosen_ + n_rows_ * n_used_)),
      row_of_(reinterpret_cast<std::int32_t*>(slot_weights_ + n_rows_ * n_used_)) {}

void ExpertPass::note(Graph& graph, const RoutedRows& routed, std::int32_t first_row) {
  const std::int64_t n_used = routed.chosen->ne[0], n_rows = routed.chosen->ne[1], at = first_row * n_used;
  ggml_context* context = graph.context();
  graph.expand(ggml_cpy(context, routed.chosen, graph.external(GGML_TYPE_I32, n_used, n_rows, chosen_ + at)));
  graph.expand(
      ggml_cpy(context, routed.routing_weights, graph.external(GGML_TYPE_F32, n_used, n_rows, routing_weights_ + at)));
}

void ExpertPass::begin(int layer, std::int32_t first_row, std::int32_t n_rows) {
  const FeedForwardSpec& spec = executor_.model().spec.layer(layer).feed_forward;
  layer_ = layer;
  done_ = 0;
  const std::int64_t first_choice = std::int64_t{first_row} * spec.n_expert_used;
  const std::int64_t last_choice = first_choice + std::int64_t{n_rows} * spec.n_expert_used;
  // This is a counting sort: it keeps an expert's rows in their order.
  std::vector<std::int32_t> next(static_cast<std::size_t>(spec.n_expert) + 1, 0);
  for (std::int64_t i = first_choice; i < last_choice; ++i) ++next[static_cast<std::size_t>(chosen_[i]) + 1];
  for (std::size_t e = 1; e < next.size(); ++e) next[e] += next[e - 1];
  first_ = next;
  for (std::int64_t i = first_choice; i < last_choice; ++i) {
    const std::int32_t slot = next[static_cast<std::size_t>(chosen_[i])]++;
    row_of_[slot] = static_cast<std::int32_t>(i / spec.n_expert_used);
    slot_weights_[slot] = routing_weights_[i];
  }
  std::fill_n(sums(first_row), n_rows * n_embd_, 0.0F);
}

bool ExpertPass::step() {
  const Model::Impl& model = executor_.model();
  const LayerSpec& spec = model.spec.layer(layer_);
  const std::int64_t most = std::int64_t{executor_.n_batch()} * spec.feed_forward.n_expert_used;
  const auto end = [&](std::int32_t slot) {  // of the expert that this slot belongs to
    return *std::upper_bound(first_.begin(), first_.end(), slot);
  };
  std::int32_t last = end(done_);
  if (last - done_ > most) {
    last = done_ + static_cast<std::int32_t>(most);
  } else {
    while (last < first_.back() && end(last) - done_ <= most) last = end(last);
  }
  const std::int64_t n_slots = last - done_;
  std::vector<std::int32_t> first_slot;
  for (const std::int32_t first : first_) first_slot.push_back(std::clamp(first, done_, last) - done_);

  executor_.run_graph([&](Graph& graph) {
    const auto rows_of = [&](float* rows) { return graph.external(GGML_TYPE_F32, n_embd_, n_rows_, rows); };
    const ExpertSlots slots{.first_slot = graph.external(GGML_TYPE_I32, std::ssize(first_slot), 1, first_slot.data()),
                            .row_of = graph.external(GGML_TYPE_I32, n_slots, 1, row_of_ + done_)};
    CpuOps ops(nullptr, executor_.compute());
    GraphBuilder builder(graph.context(), ops);
    ExpertProducts experts(graph.context(), slots, executor_.compute());
    graph.expand(builder.expert_ffn(spec, model.weights.layer(layer_), rows_of(hidden_), rows_of(sums_), experts,
                                    graph.external(GGML_TYPE_F32, n_slots, 1, slot_weights_ + done_)));
  });
  done_ = last;
  return done_ < first_.back();
}

}  // namespace winnow
