#include "engine/cpu/cpu_executor.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/cpu/cpu_pass.h"
#include "engine/output_projection.h"

namespace winnow {

CpuExecutor::CpuExecutor(const Model::Impl& model, LayerRange layers, const EngineOptions& options, int n_steps_at_once)
    : model_(model),
      layers_(layers),
      n_batch_(options.n_batch),
      n_steps_at_once_(n_steps_at_once),
      compute_(options.n_threads),
      converted_(options.prefill_weights),
      graph_(2 * kGraphNodesPerLayer) {
  note_bytes();
}

void CpuExecutor::note_bytes() {
  std::size_t bytes = graph_.bytes();
  for (const std::unique_ptr<StepGraph>& graph : step_graphs_) bytes += graph->bytes();
  bytes_ = bytes;
}

ParallelFor CpuExecutor::parallel_for() {
  return [this](int n_items, const std::function<void(int)>& body) { compute_.parallel_for(n_items, body); };
}

std::unique_ptr<PassRows> CpuExecutor::begin_pass(const PassPlan& plan) {
  return std::make_unique<CpuPass>(*this, plan);
}

bool CpuExecutor::converts_weights(std::int32_t n_rows) const {
  const std::vector<LayerWeights>& layers = model_.weights.layers;
  return std::any_of(layers.begin(), layers.end(),
                     [&](const LayerWeights& layer) { return converted_.converts(layer, n_rows); });
}

void CpuExecutor::embed(std::span<const Token> tokens, float* hidden) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    model_.embed(tokens[i], hidden + i * static_cast<std::size_t>(model_.spec.n_embd));
  }
}

StepGraph& CpuExecutor::step_graph(int n_sequences) {
  const auto is_wanted = [&](const std::unique_ptr<StepGraph>& graph) {
    return graph->positions.size() == static_cast<std::size_t>(n_sequences);
  };
  std::erase_if(step_graphs_, [&](const std::unique_ptr<StepGraph>& graph) {
    return !is_wanted(graph) && graph->last_step + n_steps_at_once_ <= n_steps_ + 1;
  });
  auto place = std::find_if(step_graphs_.begin(), step_graphs_.end(), is_wanted);
  if (place == step_graphs_.end()) {
    step_graphs_.push_back(std::make_unique<StepGraph>(model_, layers_, n_sequences, compute_));
    place = std::prev(step_graphs_.end());
  }
  return **place;
}

std::span<float> CpuExecutor::begin_step(const DecodePlan& plan) {
  StepGraph& graph = *step_;
  graph.last_step = ++n_steps_;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) graph.positions[i] = plan.sequences[i].position;
  if (layers_.first == 0) embed(plan.tokens, graph.hidden.data());
  std::copy_n(plan.tokens.begin(), graph.tokens.size(), graph.tokens.begin());
  graph.attention.plan(plan.sequences);
  note_bytes();
  return graph.hidden;
}

std::span<const float> CpuExecutor::run_step() {
  compute_.run(step_->graph);
  const ggml_tensor* logits = step_->logits;
  if (logits == nullptr) return {};
  return {static_cast<const float*>(logits->data), static_cast<std::size_t>(ggml_nelements(logits))};
}

void CpuExecutor::release_step() {
  step_graphs_.clear();
  note_bytes();
}

// Computes what `make` builds of rows of hidden states, and copies it to `out`.
template <class Make>
void CpuExecutor::run_output(float* hidden, int n_rows, std::span<float> out, const Make& make) {
  ggml_tensor* y = nullptr;
  run_graph([&](Graph& graph) {
    ggml_tensor* x = graph.external(GGML_TYPE_F32, model_.spec.n_embd, n_rows, hidden);
    CpuOps ops(nullptr, compute_);
    GraphBuilder builder(graph.context(), ops);
    y = make(builder, x);
    ggml_set_output(y);
    graph.expand(y);
  });
  std::memcpy(out.data(), y->data, out.size_bytes());
}

void CpuExecutor::output_logits(float* hidden, int n_rows, float* out) {
  run_output(hidden, n_rows, {out, static_cast<std::size_t>(n_rows * std::int64_t{model_.spec.n_vocab})},
             [&](GraphBuilder& builder, ggml_tensor* x) { return builder.logits(model_.spec, model_.weights, x); });
}

void CpuExecutor::output_hidden(float* hidden, int n_rows, float* out) {
  run_output(
      hidden, n_rows, {out, static_cast<std::size_t>(n_rows * std::int64_t{model_.spec.n_embd})},
      [&](GraphBuilder& builder, ggml_tensor* x) { return builder.output_norm(model_.spec, model_.weights, x); });
}

std::vector<float> CpuExecutor::output_projection(int layer) {
  return output_projection_slices(model_, layer, parallel_for());
}

}  // namespace winnow
