#include "engine/cpu/step_graph.h"

#include <ggml.h>

#include <algorithm>

namespace winnow {

StepGraph::StepGraph(const Model::Impl& model, LayerRange layers, int n_sequences, Compute& compute)
    : attention(model, layers, n_sequences, compute),
      graph(kGraphNodesPerLayer * static_cast<std::size_t>(layers.size() + 1)),
      hidden(static_cast<std::size_t>(n_sequences) * static_cast<std::size_t>(model.spec.n_embd)),
      positions(static_cast<std::size_t>(n_sequences)) {
  ggml_tensor* x = graph.external(GGML_TYPE_F32, model.spec.n_embd, n_sequences, hidden.data());
  ggml_tensor* position_tensor = graph.external(GGML_TYPE_I32, n_sequences, 1, positions.data());
  CpuOps ops(nullptr, compute);
  GraphBuilder builder(graph.context(), ops, attention, position_tensor);
  if (model.spec.has_per_layer_embeddings()) {
    tokens.resize(positions.size());
    builder.set_per_layer_tokens(model.spec, model.weights,
                                 graph.external(GGML_TYPE_I32, n_sequences, 1, tokens.data()));
  }
  for (int l = layers.first; l < layers.last; ++l) {
    const auto at = static_cast<std::size_t>(l);
    x = builder.layer(model.spec.layers[at], model.weights.layers[at], x);
  }
  graph.expand(x);
  if (layers.last == model.spec.n_layer()) {
    logits = builder.logits(model.spec, model.weights, x);
    ggml_set_output(logits);
    graph.expand(logits);
  }
  graph.allocate();
}

std::size_t StepGraph::bytes() const {
  return graph.bytes() + attention.bytes() + hidden.size() * sizeof(float) +
         (positions.size() + tokens.size()) * sizeof(std::int32_t);
}

std::size_t step_bytes_per_sequence(const ModelInfo& model) {
  // An upper bound on what is alive at once: a residual and what is normed, projected and added to it; queries, keys
  // and values, rotated, and the output of attention; the three of a feed-forward; the logits. The largest layer
  // counts, since layers use the same memory in turn.
  std::size_t largest = 0, partials = 0;
  for (const LayerInfo& layer : model.layers) {
    const auto n_heads = static_cast<std::size_t>(layer.n_head + layer.n_kv_head);
    const auto head_dim = static_cast<std::size_t>(std::max(layer.key_dim, layer.value_dim));
    // For experts: all that a token takes, with the output of each; the router's scores, their order and the routing
    // weights.
    const auto n_used = static_cast<std::size_t>(std::max(1, layer.n_expert_used));
    const auto n_ff = static_cast<std::size_t>(layer.n_ff) * n_used + static_cast<std::size_t>(layer.shared_n_ff);
    const std::size_t of_experts = layer.n_expert > 0 ? n_used * (2 * static_cast<std::size_t>(model.n_embd) + 8) +
                                                            4 * static_cast<std::size_t>(layer.n_expert)
                                                      : 0;
    largest = std::max(largest, 3 * n_heads * head_dim + 3 * n_ff + of_experts);
    partials = std::max(partials, StepAttention::most_partial_bytes(layer.n_head, layer.value_dim));
  }
  const std::size_t numbers =
      6 * static_cast<std::size_t>(model.n_embd) + largest + static_cast<std::size_t>(model.n_vocab);
  return numbers * sizeof(float) + sizeof(std::int32_t) + partials;
}

}  // namespace winnow
