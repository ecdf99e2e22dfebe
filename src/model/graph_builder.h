// The blocks of which models are made, as nodes of a ggml graph.
#pragma once

#include <cstddef>
#include <span>

#include "model/expert_products.h"
#include "model/layer_ops.h"
#include "model/layer_spec.h"
#include "model/weights.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// The most nodes of one layer of any architecture, with room to spare. Where ggml's own nodes sum what experts give, a
// layer has two more for each expert of a row.
inline constexpr std::size_t kGraphNodesPerLayer = 112;
constexpr std::size_t most_graph_nodes(const FeedForwardSpec& spec) {
  return kGraphNodesPerLayer + 2 * static_cast<std::size_t>(spec.n_expert_used);
}

// The engine's part of a layer, in which a row sees other rows: it stores keys and values and attends to those that are
// stored, and carries the state of recurrent layers.
class SequenceHook {
 public:
  virtual ~SequenceHook() = default;
  // Adds the nodes that store keys and values and attend, and returns their output [value_dim * n_head, n_rows]. All
  // inputs are float32: q_unrotated and q [key_dim, n_head, n_rows], k [key_dim, n_kv_head, n_rows], v
  // [value_dim, n_kv_head, n_rows]; q and k are rotated. k and v are null in a layer that attends to the keys and
  // values of an earlier one.
  virtual ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q,
                              ggml_tensor* k, ggml_tensor* v) = 0;
  // Adds the nodes of a part of a recurrent layer, which advance the state of every sequence, and returns their output:
  // [n_channels, n_rows] of a convolution, [n_values, n_rows] of the other parts. The inputs [n, n_rows] are
  // contiguous: the projected rows for a convolution; for the others the convolution's output, alpha, and the delta
  // rule's beta.
  virtual ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                             std::span<ggml_tensor* const> inputs) = 0;
};

// The builder of a graph for some rows. Tensors that it is given must outlive the graph.
class GraphBuilder {
 public:
  // Takes the operations that make the graph's nodes, and the rows' positions [n_rows], i32. All must outlive the
  // graph.
  GraphBuilder(ggml_context* context, LayerOps& ops, SequenceHook& sequences, ggml_tensor* positions)
      : context_(context), ops_(ops), sequences_(&sequences), positions_(positions) {}
  // A builder of parts without attention: `expert_ffn`, `logits`.
  GraphBuilder(ggml_context* context, LayerOps& ops) : context_(context), ops_(ops) {}

  // Sets the rows' tokens [n_rows], i32, for a model with per-layer embeddings. Call it before the first layer.
  void set_per_layer_tokens(const ModelSpec& spec, const Weights& weights, ggml_tensor* tokens);

  // Returns the hidden states after a layer from those before it, x [n_embd, n_rows]. They are written over x, so that
  // they never move in memory.
  ggml_tensor* layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);

  // Returns a layer's attention before the output projection, for rows whose hidden states after the layer nobody
  // reads: it stores their keys and values and records their queries.
  ggml_tensor* attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);

  // The next three functions do the same as layer() for a layer with experts, in three parts, so that many batches of
  // rows go through its attention before all of them go through the experts.
  //
  // Computes attention and router, and returns the routing. x becomes the hidden states after attention, which the
  // experts read.
  RoutedRows attention_and_router(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // Adds to sums [n_embd, n_all_rows] the output of the slots' experts for their rows of x [n_embd, n_all_rows], times
  // the slots' routing_weights [n_slots], and returns the sums. The experts are made of the slots.
  ggml_tensor* expert_ffn(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* sums,
                          ExpertProducts& experts, ggml_tensor* routing_weights);
  // Adds the experts' sums, shaped as x, and the shared expert's output to x, and returns the hidden states after the
  // layer.
  ggml_tensor* combine_experts(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* sums);

  // Returns the normed hidden states [n_embd, n_rows] that the output matrix reads, from x [n_embd, n_rows] after the
  // last layer.
  ggml_tensor* output_norm(const ModelSpec& spec, const Weights& weights, ggml_tensor* x);
  // Returns the logits [n_vocab, n_rows], from x [n_embd, n_rows] after the last layer.
  ggml_tensor* logits(const ModelSpec& spec, const Weights& weights, ggml_tensor* x);

 private:
  // Returns x [n, ...] normed, or x itself if there is no such norm.
  ggml_tensor* norm(const NormSpec& spec, const NormWeights& weights, ggml_tensor* x);
  // Does the same for a layer's rows that only products read.
  ggml_tensor* input_norm(const NormSpec& spec, const NormWeights& weights, ggml_tensor* x);
  // A matrix, with the bias and the factor of its products; these may be null.
  struct Matrix {
    ggml_tensor *weight = nullptr, *bias = nullptr, *scale = nullptr;
  };
  // A product that is yet to be made.
  struct Projection {
    Matrix matrix;
    ggml_tensor* rows;
  };
  ggml_tensor* linear(const Projection& y) { return linear(y.matrix, y.rows); }
  // Returns y = scale * W x + b.
  ggml_tensor* linear(const Matrix& matrix, ggml_tensor* x);
  // Returns scale * product + b.
  ggml_tensor* finished(const Matrix& matrix, ggml_tensor* product);
  // Returns the products of two or three weights with one x. Those of null weights are null.
  struct Linears {
    ggml_tensor *first, *second, *third;
  };
  Linears linears(const Matrix& first, const Matrix& second, const Matrix& third, ggml_tensor* x);
  ggml_tensor* scale(ggml_tensor* x, float factor);
  ggml_tensor* rope(const RopeSpec& spec, ggml_tensor* x, ggml_tensor* freq_factors);
  // Returns projected queries or keys x as heads [key_dim, n_head, n_rows], normed unless that comes after RoPE.
  ggml_tensor* split_heads(const LayerSpec& spec, ggml_tensor* x, int n_head, ggml_tensor* norm_weight);
  // Returns queries scaled by position (LayerSpec::temperature).
  ggml_tensor* scale_by_temperature(const LayerSpec& spec, ggml_tensor* q);
  // Each returns the output of attention, or of a recurrence, for the normed rows x: Q, K, V with the layer's biases
  // and norms, RoPE, attention, and the output projection that is left to do.
  Projection self_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  Projection latent_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  Projection recurrence(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // Returns x plus the tokens' per-layer embeddings (gemma3n, gemma4), times the output scale.
  ggml_tensor* finish_layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // Returns x plus a block's output y, normed and scaled.
  ggml_tensor* add_residual(const LayerSpec& spec, const NormWeights& post_norm, ggml_tensor* x, ggml_tensor* y);
  ggml_tensor* add_residual(const LayerSpec& spec, const NormWeights& post_norm, ggml_tensor* x, const Projection& y);
  // Returns x plus the output of attention, or of the recurrence, for its normed rows.
  ggml_tensor* attention_block(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* rows);
  // Returns the routing of rows. x: hidden states after attention; rows: x as the experts read it.
  RoutedRows route(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* rows);
  // Returns y, the experts' sums, plus the shared expert's output for these rows.
  ggml_tensor* add_shared_expert(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* rows, ggml_tensor* y);
  // Returns the output of the experts, the shared one included, for x, the hidden states after attention.
  ggml_tensor* expert_feed_forward(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  Projection dense_feed_forward(const FeedForwardSpec& spec, const LayerWeights& weights, ggml_tensor* x);

  ggml_context* context_;
  LayerOps& ops_;
  SequenceHook* sequences_ = nullptr;
  ggml_tensor* positions_ = nullptr;
  ggml_tensor* tokens_ = nullptr;    // [n_rows]
  ggml_tensor* embedded_ = nullptr;  // [n_embd, n_rows] the tokens' embeddings
};

}  // namespace winnow
