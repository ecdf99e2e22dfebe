#include "engine/cpu/cpu_pass.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/cpu/cpu_executor.h"

namespace winnow {
namespace {

// Returns the L2 norm of x, in kSums independent sums: one sum would take a hundredth of the pass.
float l2_norm(std::span<const float> x) {
  constexpr std::size_t kSums = 8;
  double squares[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) squares[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  }
  for (; i < x.size(); ++i) squares[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return static_cast<float>(std::sqrt(std::accumulate(squares, squares + kSums, 0.0)));
}

}  // namespace

CpuPass::CpuPass(CpuExecutor& executor, const PassPlan& plan)
    : executor_(executor),
      plan_(plan),
      hidden_(static_cast<std::size_t>(plan.n_rows) * static_cast<std::size_t>(executor.model().spec.n_embd) *
              sizeof(float)),
      attention_(executor.model(), *plan.entries, executor.compute(), executor.graph()) {
  if (ExpertPass::is_needed(executor.model().spec)) experts_.emplace(executor, row(0), plan.n_rows);
  if (executor.model().spec.has_per_layer_embeddings()) tokens_.resize(static_cast<std::size_t>(plan.n_rows));
}

float* CpuPass::row(std::int32_t r) {
  return reinterpret_cast<float*>(hidden_.data()) + std::int64_t{r} * executor_.model().spec.n_embd;
}

void CpuPass::embed(std::int32_t first_row, std::span<const Token> tokens) {
  if (plan_.layers.first == 0) executor_.embed(tokens, row(first_row));
  if (!tokens_.empty()) std::copy(tokens.begin(), tokens.end(), tokens_.begin() + first_row);
}

void CpuPass::begin_attention(const LayerPlan& plan) {
  const ModelSpec& spec = executor_.model().spec;
  if (plan.copied_to >= 0) {
    std::copy_n(row(plan.rows.first_row), std::int64_t{plan.rows.n_rows} * spec.n_embd, row(plan.copied_to));
  }
  if (plan.copies.input_norm != nullptr) {
    for (std::int32_t r = 0; r < plan.rows.n_rows; ++r) {
      plan.copies.input_norm[r] = l2_norm({row(plan.rows.first_row + r), static_cast<std::size_t>(spec.n_embd)});
    }
  }
  if (spec.layer(plan.layer).kind == LayerKind::kRecurrent) {
    attention_.begin(plan.layer, plan.rows.n_rows, plan.state);
  } else {
    attention_.begin(plan);
  }
}

template <class Build>
void CpuPass::run(const LayerPlan& plan, const Build& build) {
  const Model::Impl& model = executor_.model();
  const auto at = static_cast<std::size_t>(plan.layer);
  const std::int32_t n_rows = plan.rows.n_rows;
  PackedLayer* converted = executor_.converted().use(model.weights.layers[at], plan_.n_converted,
                                                     std::min(plan_.n_rows, executor_.n_batch()), executor_.compute());
  if (converted != nullptr) converted->prepare(n_rows);
  positions_.resize(static_cast<std::size_t>(n_rows));
  std::iota(positions_.begin(), positions_.end(), plan.rows.first_position);
  executor_.run_graph([&](Graph& graph) {
    ggml_tensor* x = graph.external(GGML_TYPE_F32, model.spec.n_embd, n_rows, row(plan.rows.first_row));
    ggml_tensor* positions = graph.external(GGML_TYPE_I32, n_rows, 1, positions_.data());
    CpuOps ops(converted, executor_.compute());
    GraphBuilder builder(graph.context(), ops, attention_, positions);
    if (!tokens_.empty()) {
      builder.set_per_layer_tokens(model.spec, model.weights,
                                   graph.external(GGML_TYPE_I32, n_rows, 1, tokens_.data() + plan.rows.first_row));
    }
    build(graph, builder, model.spec.layers[at], model.weights.layers[at], x);
  });
}

void CpuPass::run_layer(const LayerPlan& plan) {
  begin_attention(plan);
  run(plan,
      [&](Graph& graph, GraphBuilder& builder, const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
        graph.expand(plan.is_output_read ? builder.layer(spec, weights, x) : builder.attention(spec, weights, x));
      });
}

void CpuPass::run_attention_and_router(const LayerPlan& plan) {
  begin_attention(plan);
  run(plan,
      [&](Graph& graph, GraphBuilder& builder, const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x) {
        experts_->note(graph, builder.attention_and_router(spec, weights, x), plan.rows.first_row);
      });
}

void CpuPass::begin_experts(const ExpertPlan& plan) { experts_->begin(plan.layer, plan.first_row, plan.n_rows); }

void CpuPass::combine_experts(const LayerPlan& plan) {
  run(plan, [&](Graph& graph, GraphBuilder& builder, const LayerSpec& spec, const LayerWeights& weights,
                ggml_tensor* x) {
    ggml_tensor* sums = graph.external(GGML_TYPE_F32, x->ne[0], plan.rows.n_rows, experts_->sums(plan.rows.first_row));
    graph.expand(builder.combine_experts(spec, weights, x, sums));
  });
}

}  // namespace winnow
