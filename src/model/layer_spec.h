// The specification of a model and its layers, the only place where their dimensions and constants stand. An
// architecture fills it from the file's metadata; everything else (weights, graphs, caches, budgets, files) follows it.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/model.h"

namespace winnow {

enum class NormKind { kRms, kLayer };

// The norm of a row, by its root mean square (RMSNorm) or by mean and variance (LayerNorm).
struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-5F;  // added to the mean square, or to the variance
};
// The place of a block's norms: on the input of attention and feed-forward, on their output, or on both.
enum class NormPlacement { kBefore, kAfter, kBoth };
// The norm of queries and keys: of every head with the same weights, of every head with its own, or of all heads of a
// token together.
enum class QkNorm { kNone, kHead, kOwnHead, kProjection };
enum class Activation { kSilu, kGelu, kClampedSilu };  // kClampedSilu: gpt-oss's swiglu

// The function from the router's logits to routing weights. The experts with the largest are chosen.
enum class Routing {
  kNone,               // the architecture has no experts
  kSoftmax,            // softmax over all experts
  kNormalisedSoftmax,  // softmax over all experts, then the chosen ones' weights are divided by their sum
  kSoftmaxOfChosen,    // softmax over the chosen experts
  kSigmoid,            // sigmoid of each expert's logit
  kNormalisedSigmoid,  // sigmoid of each, then the chosen ones' weights are divided by their sum
};

// The source of the factors by which RoPE's frequencies are divided, one for each pair.
enum class RopeFactors {
  kIfThere,    // rope_freqs if the file has it
  kNone,       // no factors
  kRequired,   // rope_freqs, which must be there (gemma4)
  kByContext,  // rope_factors_long or _short, which must be there (long RoPE)
};

// Rotary position embedding. Pairs are (2i, 2i+1) in mode GGML_ROPE_TYPE_NORMAL, (i, i + n_dims/2) in
// GGML_ROPE_TYPE_NEOX.
struct RopeSpec {
  int mode = 0;
  int n_dims = 0;  // rotated dimensions of a head, the first ones; 0: the layer has no RoPE
  float base = 10000.0F;
  float scale = 1.0F;           // frequency scale: 1 / factor for linear scaling and YaRN
  std::int32_t n_ctx_orig = 0;  // the context in tokens before scaling (YaRN, long RoPE)
  bool is_extended = false;     // the model's context is longer than n_ctx_orig
  RopeFactors factors = RopeFactors::kIfThere;
  float yarn_ext_factor = 0;  // 1 with YaRN
  float attn_factor = 1;      // magnitude of sine and cosine before ggml's own YaRN factor
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
};

// The feed-forward network of a layer, dense or with experts.
struct FeedForwardSpec {
  bool is_gated = true;        // down(activation(gate x) * up x); else down(activation(up x))
  bool is_gate_in_up = false;  // the file's ffn_up holds gate and up, one after the other
  Activation activation = Activation::kSilu;
  int width = 0;  // n_ff; of one expert in a layer with experts
  // The file's feed_forward_length is the width of all experts that a token takes together, for files that do not state
  // one expert's (Qwen1.5-MoE's of before June 2024).
  bool is_width_of_all_used = false;
  Routing routing = Routing::kNone;
  int n_expert = 0;       // number of experts; 0: dense
  int n_expert_used = 0;  // number of experts to which a token is routed
  float share_scale = 1;  // factor on the routing weights, after all else
  int shared_width = 0;   // width of the shared expert, which every token passes through as well; 0: none
  // gemma4: the shared expert is a feed-forward network under the names of a dense one. It and the experts have norms
  // of their own before and after, and the router's rows are scaled.
  bool is_dense_beside = false;
  bool has_shared_gate = false;  // the shared expert's output is multiplied by a sigmoid of its own
};

enum class RecurrenceKind { kNone, kShortConvolution, kDeltaNet, kMamba2 };  // LFM2's; Qwen3.5's; Granite 4's

// The recurrence that a layer has instead of attention.
struct RecurrenceSpec {
  RecurrenceKind kind = RecurrenceKind::kNone;
  int n_taps = 0;  // rows that the convolution sees, the present one included
  // The heads of layers that carry a matrix per value head (DeltaNet, Mamba-2), and the numbers of a key (and query)
  // and of a value. Mamba-2 calls keys B, queries C, values x, and a key head a group.
  int n_key_heads = 0, n_value_heads = 0;
  int key_dim = 0, value_dim = 0;

  std::int64_t n_values() const { return std::int64_t{n_value_heads} * value_dim; }
  std::int64_t n_channels(std::int64_t n_embd) const {  // channels of the convolution
    return kind == RecurrenceKind::kShortConvolution ? n_embd : std::int64_t{2} * n_key_heads * key_dim + n_values();
  }
  // Return how many numbers the layer carries from token to token: the convolution's alone, and with the matrices.
  std::int64_t convolution_size(std::int64_t n_embd) const { return (n_taps - 1) * n_channels(n_embd); }
  std::int64_t state_size(std::int64_t n_embd) const {
    return kind == RecurrenceKind::kNone ? 0 : convolution_size(n_embd) + n_values() * key_dim;
  }
};

// A part of a recurrence that is a node of its own (short_convolution.h, delta_rule.h, selective_scan.h).
enum class RecurrentStep { kGatedConvolution, kSiluConvolution, kDeltaRule, kSelectiveScan };

// One layer.
struct LayerSpec {
  LayerKind kind = LayerKind::kFullAttention;
  int kv_layer = -1;  // the layer whose keys and values are attended to: itself, or in kSharedAttention an earlier one

  RecurrenceSpec recurrence = {};  // of a layer of kind kRecurrent

  // Attention; all 0 in a recurrent layer.
  int n_head = 0;
  int n_kv_head = 0;
  int key_dim = 0;                  // numbers of a query and of a key
  int value_dim = 0;                // numbers of a value and of a head's output
  std::int32_t sliding_window = 0;  // tokens that a row sees, itself included; 0: all
  float scale = 0;                  // softmax scale
  float soft_cap = 0;               // soft cap of scores; 0: none
  bool has_sink_logits = false;     // a learned sink logit per query head joins the softmax
  RopeSpec rope = {};
  // Queries are multiplied by 1 + temperature * ln(1 + floor(position / temperature_length)); 0: they are not scaled.
  float temperature = 0;
  std::int32_t temperature_length = 1;
  QkNorm qk_norm = QkNorm::kNone;
  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): every head's keys and values are projected from one
  // latent of so many numbers, but for a key's first rope.n_dims numbers, which are projected from the hidden state,
  // once for all heads. 0: ordinary attention.
  int latent_rank = 0;
  int query_rank = 0;               // numbers of the latent of queries; 0: they are projected from the hidden state
  bool has_output_gate = false;     // wq also gives a gate after each head's query; its sigmoid multiplies the output
  bool is_norm_after_rope = false;  // queries and keys are normed after RoPE instead of before
  bool has_value_norm = false;      // values are normed, without weights
  bool is_key_value = false;        // a value is the head's key before its norm and RoPE

  NormSpec norm;
  NormPlacement norms = NormPlacement::kBefore;
  // The layer is x + attention(norm x) + feed_forward(norm x), with one norm; otherwise the feed-forward network reads
  // the sum of x and attention. Not with experts.
  bool is_parallel = false;
  float residual_scale = 1;  // factor on the outputs of attention and feed-forward before they are added
  FeedForwardSpec feed_forward = {};

  // Biases that the file must have; others are used if it has them.
  bool has_output_bias = false;
  bool has_norm_bias = false;
  bool has_feed_forward_bias = false;
  const char* ffn_norm_name = "ffn_norm";  // tensor of the norm before the feed-forward
  // Numbers of a token's per-layer embedding for this layer (gemma3n, gemma4); 0: none.
  int per_layer_embedding_dim = 0;
  bool has_output_scale = false;  // the hidden state after the layer may be multiplied by a number

  bool owns_entries() const { return n_kv_head > 0 && kind != LayerKind::kSharedAttention; }
  int n_group() const { return n_kv_head > 0 ? n_head / n_kv_head : 0; }
  int q_size() const { return n_head * key_dim; }         // numbers of a token's queries
  int k_size() const { return n_kv_head * key_dim; }      // numbers of a token's keys
  int v_size() const { return n_kv_head * value_dim; }    // numbers of a token's values
  int output_size() const { return n_head * value_dim; }  // numbers of attention's output before the output projection
};

// The layers first, ..., last - 1 of a model, which one machine computes. It receives hidden states from the machine
// before it (the first one embeds tokens) and sends them to the next (the last one computes logits).
struct LayerRange {
  int first = 0;
  int last = 0;

  int size() const { return last - first; }
  bool operator==(const LayerRange&) const = default;
};

// A model.
struct ModelSpec {
  int n_embd = 0;
  int n_vocab = 0;
  std::int32_t n_ctx_train = 0;
  const char* output_norm_name = "output_norm";  // tensor of the norm before the output
  NormSpec norm;
  float embedding_scale = 1;  // gemma: sqrt(n_embd)
  float logit_scale = 1;
  float logit_soft_cap = 0;  // 0: none
  std::vector<LayerSpec> layers;
  int n_skipped_layers = 0;  // layers after these in the file that are not used: they predict further tokens

  int n_layer() const { return static_cast<int>(layers.size()); }
  const LayerSpec& layer(int l) const { return layers[static_cast<std::size_t>(l)]; }
  // Returns true if the layers have per-layer embeddings; all of them do, or none.
  bool has_per_layer_embeddings() const { return layers.front().per_layer_embedding_dim > 0; }
  LayerRange all_layers() const { return {.first = 0, .last = n_layer()}; }
};

}  // namespace winnow
