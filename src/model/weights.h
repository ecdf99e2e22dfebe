// The tensors of a model under the names that the graph builders use.
#pragma once

#include <memory>
#include <vector>

#include "gguf/gguf_file.h"
#include "model/architecture.h"
#include "model/layer_spec.h"

struct ggml_context;
struct ggml_tensor;

namespace winnow {

// The weights of a norm. Both are null if there is no such norm; the bias is null if the norm has none.
struct NormWeights {
  ggml_tensor* weight = nullptr;  // [n]
  ggml_tensor* bias = nullptr;    // [n]
};

// Factors on the products with a layer's matrices: [1], or [n_expert] for experts' matrices. NVFP4's files have them as
// its second scales. Null: 1.
struct ProductScales {
  ggml_tensor *wq = nullptr, *wk = nullptr, *wv = nullptr, *wo = nullptr;
  ggml_tensor *conv_in = nullptr, *conv_out = nullptr;
  ggml_tensor *state_gate = nullptr, *state_alpha = nullptr, *state_beta = nullptr;
  ggml_tensor *gate = nullptr, *up = nullptr, *down = nullptr;
  ggml_tensor *gate_experts = nullptr, *up_experts = nullptr, *down_experts = nullptr;
};

// The tensors of one layer; null where the layer has none. All point into the file's mapping until they are interleaved
// (interleaved_weights.h). Matrices that the file holds in one tensor (attn_qkv; gate and up) are slices of it.
struct LayerWeights {
  int layer = 0;
  NormWeights attn_norm;       // [n_embd], before attention
  NormWeights attn_post_norm;  // [n_embd], after the output projection
  ggml_tensor* wq = nullptr;   // [n_embd, n_head * key_dim]; twice that with has_output_gate
  ggml_tensor* wk = nullptr;   // [n_embd, n_kv_head * key_dim]; null in a layer that attends to another's
  ggml_tensor* wv = nullptr;   // [n_embd, n_kv_head * value_dim]; null with is_key_value
  ggml_tensor* wo = nullptr;   // [n_head * value_dim, n_embd]
  ggml_tensor* bq = nullptr;
  ggml_tensor* bk = nullptr;
  ggml_tensor* bv = nullptr;
  ggml_tensor* bo = nullptr;
  // Powers of two (balanced_pairs.h), [n_head * key_dim] and [n_kv_head * key_dim], which Model::Impl::balance sets;
  // null: all are 1.
  ggml_tensor* q_scales = nullptr;
  ggml_tensor* k_scales = nullptr;
  ggml_tensor* q_norm = nullptr;       // QkNorm: [key_dim], [key_dim, n_head] or [n_head * key_dim]
  ggml_tensor* k_norm = nullptr;       // likewise of the KV heads
  ggml_tensor* sink_logits = nullptr;  // [n_head]
  // Latent attention (LayerSpec::latent_rank). If there is a query_a, wq reads its output. latent_k gives keys without
  // their rotated part.
  ggml_tensor* query_a = nullptr;       // [n_embd, query_rank]
  ggml_tensor* query_a_norm = nullptr;  // [query_rank]
  ggml_tensor* latent = nullptr;        // [n_embd, latent_rank + rope.n_dims]
  ggml_tensor* latent_norm = nullptr;   // [latent_rank]
  ggml_tensor* latent_k = nullptr;      // [latent_rank, n_head * (key_dim - rope.n_dims)]
  ggml_tensor* latent_v = nullptr;      // [latent_rank, n_head * value_dim]
  ggml_tensor* latent_kv = nullptr;     // in place of these two: for every head the outputs of its key, then its value
  // Recurrent layers (RecurrenceSpec).
  ggml_tensor* conv = nullptr;              // [n_taps, n_channels]
  ggml_tensor* conv_b = nullptr;            // [n_channels]
  ggml_tensor* conv_in = nullptr;           // [n_embd, n_channels]; the gated convolution's [n_embd, 3 * n_embd]
  ggml_tensor* conv_out = nullptr;          // [n_values, n_embd]; the gated convolution's [n_embd, n_embd]
  ggml_tensor* state_gate = nullptr;        // [n_embd, n_values], gate of the output
  ggml_tensor* state_alpha = nullptr;       // [n_embd, n_value_heads], decay of the state by a row
  ggml_tensor* state_beta = nullptr;        // [n_embd, n_value_heads], DeltaNet: part of the state that a row replaces
  ggml_tensor* state_decay = nullptr;       // [n_value_heads]
  ggml_tensor* state_decay_bias = nullptr;  // [n_value_heads]
  ggml_tensor* state_skip = nullptr;        // [n_value_heads], Mamba-2's D: factor on the value added to the output
  ggml_tensor* state_norm = nullptr;        // [value_dim]; Mamba-2 [n_values / n_key_heads, n_key_heads]
  NormWeights ffn_norm;                     // [n_embd]
  NormWeights ffn_post_norm;                // [n_embd]
  NormWeights experts_norm;                 // [n_embd], before the experts; ffn_norm if they have none of their own
  NormWeights experts_post_norm;            // [n_embd], of the experts' output, without the shared expert's
  NormWeights shared_post_norm;             // [n_embd], of the shared expert's output
  ggml_tensor* gate = nullptr;  // [n_embd, n_ff]; gate, up and down are the shared expert's if there are any
  ggml_tensor* up = nullptr;    // [n_embd, n_ff]
  ggml_tensor* down = nullptr;  // [n_ff, n_embd]
  ggml_tensor* gate_b = nullptr;
  ggml_tensor* up_b = nullptr;
  ggml_tensor* down_b = nullptr;
  ggml_tensor* router = nullptr;          // [n_embd, n_expert]
  ggml_tensor* router_b = nullptr;        // [n_expert]
  ggml_tensor* router_scale = nullptr;    // [n_embd], factors on the router's rows, which are normed without weights
  ggml_tensor* choice_b = nullptr;        // [n_expert], added to the routing weights for the choice alone
  ggml_tensor* expert_scale = nullptr;    // [n_expert], factors on the experts' outputs
  ggml_tensor* gate_experts = nullptr;    // [n_embd, n_ff, n_expert]
  ggml_tensor* up_experts = nullptr;      // [n_embd, n_ff, n_expert]
  ggml_tensor* down_experts = nullptr;    // [n_ff, n_embd, n_expert]
  ggml_tensor* gate_experts_b = nullptr;  // [n_ff, n_expert]
  ggml_tensor* up_experts_b = nullptr;    // [n_ff, n_expert]
  ggml_tensor* down_experts_b = nullptr;  // [n_embd, n_expert]
  ggml_tensor* shared_gate = nullptr;     // [n_embd, 1], gate of the shared expert
  ggml_tensor* rope_freqs = nullptr;      // [rope.n_dims / 2] RoPE factors, shared by all layers
  // Per-layer embeddings (LayerSpec::per_layer_embedding_dim).
  ggml_tensor* token_rows = nullptr;       // [per_layer_embedding_dim, n_vocab]
  ggml_tensor* token_proj = nullptr;       // [n_embd, per_layer_embedding_dim], projection of the token's embedding
  ggml_tensor* token_proj_norm = nullptr;  // [per_layer_embedding_dim], shared by all layers
  ggml_tensor* token_gate = nullptr;       // [n_embd, per_layer_embedding_dim], projection of the hidden state
  ggml_tensor* token_out = nullptr;        // [per_layer_embedding_dim, n_embd]
  NormWeights token_post_norm;             // [n_embd]
  ggml_tensor* output_scale = nullptr;     // [1], factor on the hidden state after the layer
  ProductScales scales;

  // Returns the matrices by which every row is multiplied.
  std::vector<ggml_tensor*> matrices() const;
  // Returns pointers to these fields and to the experts' matrices, which may be null.
  std::vector<ggml_tensor**> places_of_products();
  // Returns pointers to all of these fields.
  std::vector<ggml_tensor**> places();
};

// The tensors of a model.
struct Weights {
  ggml_tensor* token_embd = nullptr;    // [n_embd, n_vocab]
  NormWeights output_norm;              // [n_embd]
  ggml_tensor* output = nullptr;        // [n_embd, n_vocab]; token_embd itself where the file ties them
  ggml_tensor* output_b = nullptr;      // [n_vocab]
  ggml_tensor* logits_scale = nullptr;  // [1], factor on the product with `output`
  std::vector<LayerWeights> layers;
  const LayerWeights& layer(int l) const { return layers[static_cast<std::size_t>(l)]; }
  std::shared_ptr<ggml_context> views;                // owner of the slices
  std::vector<std::shared_ptr<ggml_context>> copies;  // owners of tensors that the file has not, or in another order
};

// Reads and checks the metadata, and returns the specification. Throws Error(kBadFile), and Error(kUnsupported) for
// properties that this build cannot compute.
ModelSpec read_spec(const GgufFile& file, const Architecture& architecture);

// Returns all tensors, with their shapes checked. Throws Error(kBadFile), and Error(kUnsupported) for a file with
// tensors that would not be used: they would change the model's answers.
Weights load_weights(const GgufFile& file, const ModelSpec& spec);

// Writes one row of a weight matrix as float32 to `out`, e.g. an embedding.
void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out);

}  // namespace winnow
