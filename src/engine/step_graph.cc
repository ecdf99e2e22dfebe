#include "engine/step_graph.h"

#include <ggml.h>

namespace winnow {

StepGraph::StepGraph(const Model::Impl& model, int n_sequences, Compute& compute)
    : attention(model.hparams, n_sequences, compute),
      graph(kGraphNodesPerLayer * static_cast<std::size_t>(model.hparams.n_layer + 1)),
      hidden(static_cast<std::size_t>(n_sequences) * static_cast<std::size_t>(model.hparams.n_embd)),
      positions(static_cast<std::size_t>(n_sequences)) {
  ggml_tensor* x = graph.external(GGML_TYPE_F32, model.hparams.n_embd, n_sequences, hidden.data());
  ggml_tensor* position_tensor = graph.external(GGML_TYPE_I32, n_sequences, 1, positions.data());
  GraphBuilder builder(graph.context(), model.hparams, attention, position_tensor, nullptr, compute);
  for (const LayerWeights& weights : model.weights.layers) x = model.architecture.build_layer(builder, weights, x);
  logits = builder.linear(model.weights.output, nullptr, builder.rms_norm(x, model.weights.output_norm));
  ggml_set_output(logits);
  graph.expand(logits);
  graph.allocate();
}

std::size_t StepGraph::bytes() const {
  return graph.bytes() + attention.bytes() + hidden.size() * sizeof(float) + positions.size() * sizeof(std::int32_t);
}

std::size_t step_bytes_per_sequence(const ModelInfo& model) {
  // More than is ever there together: a residual and what is normed, projected and added to it; queries, keys and
  // values, rotated, and the output of attention; the three of a feed-forward; the logits.
  const std::size_t numbers =
      6 * static_cast<std::size_t>(model.n_embd) +
      3 * static_cast<std::size_t>(model.n_head + model.n_kv_head) * static_cast<std::size_t>(model.head_dim) +
      3 * static_cast<std::size_t>(model.n_ff) + static_cast<std::size_t>(model.n_vocab);
  return numbers * sizeof(float) + sizeof(std::int32_t) +
         StepAttention::most_partial_bytes(model.n_head, model.head_dim);
}

}  // namespace winnow
