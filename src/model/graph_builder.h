// The blocks that models are made of, as nodes of a ggml graph.
#pragma once

#include <cstddef>
#include <span>

#include "model/expert_products.h"
#include "model/layer_spec.h"
#include "model/packed_weights.h"
#include "model/stored_product.h"
#include "model/weights.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// Nodes of one layer of any architecture, with room to spare.
inline constexpr std::size_t kGraphNodesPerLayer = 96;

// The engine's side of what sees other rows: stores keys and values and attends to what is stored; carries the state of
// recurrent layers.
class SequenceHook {
 public:
  virtual ~SequenceHook() = default;
  // q_unrotated, q [key_dim, n_head, n_rows], k [key_dim, n_kv_head, n_rows], v [value_dim, n_kv_head, n_rows], all
  // float32; q and k rotated. k and v are null in a layer that attends to what an earlier one has stored. Returns the
  // nodes' output [value_dim * n_head, n_rows].
  virtual ggml_tensor* attend(ggml_context* context, int layer, ggml_tensor* q_unrotated, ggml_tensor* q,
                              ggml_tensor* k, ggml_tensor* v) = 0;
  // A part of a recurrent layer; the state of every sequence moves on. inputs, [n, n_rows] each, contiguous: of a
  // convolution what is projected for it, of the others the convolution's output, alpha, and the delta rule's beta.
  // Returns [n_channels, n_rows] and [n_values, n_rows].
  virtual ggml_tensor* recur(ggml_context* context, int layer, RecurrentStep step,
                             std::span<ggml_tensor* const> inputs) = 0;
};

class GraphBuilder {
 public:
  // positions [n_rows], i32. packed: the layer's weights converted for many rows, or null for products on the file's
  // own types. compute: runs the graph. All must outlive the graph.
  GraphBuilder(ggml_context* context, SequenceHook& sequences, ggml_tensor* positions, const PackedLayer* packed,
               Compute& compute)
      : context_(context), sequences_(&sequences), positions_(positions), packed_(packed), compute_(compute) {}
  // For what has no attention: `expert_ffn`, `logits`.
  GraphBuilder(ggml_context* context, Compute& compute) : context_(context), compute_(compute) {}

  // The rows' tokens [n_rows], i32, for a model whose layers have a per_layer_embedding_dim: before the first layer.
  void set_per_layer_tokens(const ModelSpec& spec, const Weights& weights, ggml_tensor* tokens);

  // x [n_embd, n_rows] -> the hidden states after the layer, written over x: they never move.
  ggml_tensor* layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);

  // The same of a layer with experts in three parts, so that many batches of rows go through its attention before all
  // of them go through the experts. Which experts a row takes, and the share of each: [n_expert_used, n_rows].
  struct Routed {
    ggml_tensor* chosen;  // i32
    ggml_tensor* routing_weights;
  };
  // x becomes what the experts read.
  Routed attention_and_router(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // Adds to sums [n_embd, n_all_rows] what the slots' experts make of their rows of x [n_embd, n_all_rows], times the
  // slots' routing_weights [n_slots].
  ggml_tensor* expert_ffn(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* sums,
                          const ExpertSlots& slots, ggml_tensor* routing_weights);
  // The shared expert, and what is added to x; sums as x.
  ggml_tensor* combine_experts(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* sums);

  // x [n_embd, n_rows], the hidden states after the last layer -> [n_embd, n_rows], as the output reads them.
  ggml_tensor* output_norm(const ModelSpec& spec, const Weights& weights, ggml_tensor* x);
  // The same -> [n_vocab, n_rows].
  ggml_tensor* logits(const ModelSpec& spec, const Weights& weights, ggml_tensor* x);

 private:
  // x itself where there is no such norm. x [n, ...].
  ggml_tensor* norm(const NormSpec& spec, const NormWeights& weights, ggml_tensor* x);
  // x contiguous; weight may be null. spec outlives the graph.
  ggml_tensor* rms_norm(const NormSpec& spec, ggml_tensor* weight, ggml_tensor* x);
  // y = W x + b; bias may be null.
  ggml_tensor* linear(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x);
  ggml_tensor* scale(ggml_tensor* x, float factor);
  ggml_tensor* rope(const RopeSpec& spec, ggml_tensor* x, ggml_tensor* freq_factors);
  ggml_tensor* split_heads(const LayerSpec& spec, ggml_tensor* x, int n_head, ggml_tensor* norm_weight);
  ggml_tensor* scale_by_temperature(const LayerSpec& spec, ggml_tensor* q);
  // Q, K, V with biases and norms where the layer has them, RoPE, attention, output projection.
  ggml_tensor* self_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  ggml_tensor* latent_attention(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  ggml_tensor* recurrence(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // x -> x with what its token brings to the layer (gemma3n's and gemma4's per-layer embeddings), times the output
  // scale.
  ggml_tensor* finish_layer(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  // What a block gives, normed and scaled, added to x.
  ggml_tensor* add_residual(const LayerSpec& spec, const NormWeights& post_norm, ggml_tensor* x, ggml_tensor* y);
  // x -> x with attention's, or the recurrence's, output; the rows that it has read.
  ggml_tensor* attention_block(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* rows);
  ggml_tensor* activate(Activation activation, ggml_tensor* gate, ggml_tensor* up);
  // x: after attention; rows: what the experts read of it.
  Routed route(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x, ggml_tensor* rows);
  ggml_tensor* expert_products(const FeedForwardSpec& spec, const LayerWeights& weights, ExpertProducts& experts,
                               ggml_tensor* rows);
  // y, the experts' sums, with the shared expert's output of these rows.
  ggml_tensor* add_shared_expert(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* rows, ggml_tensor* y);
  // x: after attention.
  ggml_tensor* expert_feed_forward(const LayerSpec& spec, const LayerWeights& weights, ggml_tensor* x);
  ggml_tensor* dense_feed_forward(const FeedForwardSpec& spec, const LayerWeights& weights, ggml_tensor* x);

  ggml_context* context_;
  SequenceHook* sequences_ = nullptr;
  ggml_tensor* positions_ = nullptr;
  const PackedLayer* packed_ = nullptr;
  Compute& compute_;
  QuantisedRows quantised_;
  ggml_tensor* tokens_ = nullptr;    // [n_rows]
  ggml_tensor* embedded_ = nullptr;  // [n_embd, n_rows] their embeddings
};

}  // namespace winnow
