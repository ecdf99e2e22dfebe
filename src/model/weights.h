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

// Both null where there is no such norm; bias null where it has none.
struct NormWeights {
  ggml_tensor* weight = nullptr;  // [n]
  ggml_tensor* bias = nullptr;    // [n]
};

// All tensors point into the file's mapping until they are interleaved (interleaved_weights.h); what the file holds in
// one tensor (attn_qkv; gate and up) is a slice of it. Null where the layer has none.
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
  ggml_tensor* q_norm = nullptr;  // QkNorm: [key_dim], [key_dim, n_head] or [n_head * key_dim]
  ggml_tensor* k_norm = nullptr;  // likewise of the KV heads
  ggml_tensor* sinks = nullptr;   // [n_head] logits
  // Of latent attention: wq reads what query_a makes, where there is one; a head's keys without the rotated part.
  ggml_tensor* query_a = nullptr;       // [n_embd, query_rank]
  ggml_tensor* query_a_norm = nullptr;  // [query_rank]
  ggml_tensor* latent = nullptr;        // [n_embd, latent_rank + rope.n_dims]
  ggml_tensor* latent_norm = nullptr;   // [latent_rank]
  ggml_tensor* latent_k = nullptr;      // [latent_rank, n_head * (key_dim - rope.n_dims)]
  ggml_tensor* latent_v = nullptr;      // [latent_rank, n_head * value_dim]
  ggml_tensor* latent_kv = nullptr;     // instead of these two: of every head its keys' outputs, then its values'
  // Of a recurrent layer.
  ggml_tensor* conv = nullptr;              // [n_taps, n_channels]
  ggml_tensor* conv_b = nullptr;            // [n_channels]
  ggml_tensor* conv_in = nullptr;           // [n_embd, n_channels]; the gated convolution's [n_embd, 3 * n_embd]
  ggml_tensor* conv_out = nullptr;          // [n_values, n_embd]; the gated convolution's [n_embd, n_embd]
  ggml_tensor* state_gate = nullptr;        // [n_embd, n_values], of the output
  ggml_tensor* state_alpha = nullptr;       // [n_embd, n_value_heads], how much a row makes it decay
  ggml_tensor* state_beta = nullptr;        // [n_embd, n_value_heads], DeltaNet: how much of it a row replaces
  ggml_tensor* state_decay = nullptr;       // [n_value_heads]
  ggml_tensor* state_decay_bias = nullptr;  // [n_value_heads]
  ggml_tensor* state_skip = nullptr;        // [n_value_heads], Mamba-2: of the value that is added to what is read
  ggml_tensor* state_norm = nullptr;        // [value_dim]; Mamba-2 [n_values / n_key_heads, n_key_heads]
  NormWeights ffn_norm;                     // [n_embd]
  NormWeights ffn_post_norm;                // [n_embd]
  NormWeights experts_norm;                 // [n_embd], before them; ffn_norm where they have none of their own
  NormWeights experts_post_norm;            // [n_embd], of what they give, without the shared one's
  NormWeights shared_post_norm;             // [n_embd], of what the shared one gives
  ggml_tensor* gate = nullptr;              // [n_embd, n_ff]; where there are experts, of the shared one
  ggml_tensor* up = nullptr;                // [n_embd, n_ff]
  ggml_tensor* down = nullptr;              // [n_ff, n_embd]
  ggml_tensor* gate_b = nullptr;
  ggml_tensor* up_b = nullptr;
  ggml_tensor* down_b = nullptr;
  ggml_tensor* router = nullptr;          // [n_embd, n_expert]
  ggml_tensor* router_b = nullptr;        // [n_expert]
  ggml_tensor* router_scale = nullptr;    // [n_embd], of the router's rows, which are normed without weights
  ggml_tensor* choice_b = nullptr;        // [n_expert], added to the weights for the choice alone
  ggml_tensor* expert_scale = nullptr;    // [n_expert], of what each gives
  ggml_tensor* gate_experts = nullptr;    // [n_embd, n_ff, n_expert]
  ggml_tensor* up_experts = nullptr;      // [n_embd, n_ff, n_expert]
  ggml_tensor* down_experts = nullptr;    // [n_ff, n_embd, n_expert]
  ggml_tensor* gate_experts_b = nullptr;  // [n_ff, n_expert]
  ggml_tensor* up_experts_b = nullptr;    // [n_ff, n_expert]
  ggml_tensor* down_experts_b = nullptr;  // [n_embd, n_expert]
  ggml_tensor* shared_gate = nullptr;     // [n_embd, 1], of the shared expert
  ggml_tensor* rope_freqs = nullptr;      // [rope.n_dims / 2] factors, shared by all layers
  // Of what a token brings to the layer: with per_layer_embedding_dim.
  ggml_tensor* token_rows = nullptr;       // [per_layer_embedding_dim, n_vocab]
  ggml_tensor* token_proj = nullptr;       // [n_embd, per_layer_embedding_dim], of its embedding
  ggml_tensor* token_proj_norm = nullptr;  // [per_layer_embedding_dim], shared by all layers
  ggml_tensor* token_gate = nullptr;       // [n_embd, per_layer_embedding_dim], of the hidden state
  ggml_tensor* token_out = nullptr;        // [per_layer_embedding_dim, n_embd]
  NormWeights token_post_norm;             // [n_embd]
  ggml_tensor* output_scale = nullptr;     // [1]

  // Those that every row is multiplied by.
  std::vector<ggml_tensor*> matrices() const;
  // Where these are, and the experts'; some are null.
  std::vector<ggml_tensor**> places_of_products();
};

struct Weights {
  ggml_tensor* token_embd = nullptr;  // [n_embd, n_vocab]
  NormWeights output_norm;            // [n_embd]
  ggml_tensor* output = nullptr;      // [n_embd, n_vocab]; token_embd itself where the file ties them
  ggml_tensor* output_b = nullptr;    // [n_vocab]
  std::vector<LayerWeights> layers;
  std::shared_ptr<ggml_context> views;                // of the slices
  std::vector<std::shared_ptr<ggml_context>> copies;  // of the matrices that the file holds in another order
};

// Reads and checks the metadata. Throws Error(kBadFile), and kUnsupported for what this build cannot do.
ModelSpec read_spec(const GgufFile& file, const Architecture& architecture);

// Finds every tensor, checks its shape, and refuses a file with tensors that nobody would use: they would change the
// model's answers.
Weights load_weights(const GgufFile& file, const ModelSpec& spec);

// One row of a weight matrix as float32 (an embedding).
void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out);

}  // namespace winnow
