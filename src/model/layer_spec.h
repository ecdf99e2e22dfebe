// What the layers of a model are: the only place where their dimensions and constants stand. An architecture fills the
// table from the file's metadata; everything else (weights, graphs, caches, budgets, files) follows it.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/model.h"

namespace winnow {

enum class NormKind { kRms, kLayer };

struct NormSpec {
  NormKind kind = NormKind::kRms;
  float eps = 1e-5F;  // added to the mean square, or to the variance
};
// What of a block is normalised: the rows that attention and feed-forward read, what they give, or both.
enum class NormPlacement { kBefore, kAfter, kBoth };
// What of queries and keys is normalised: every head with the same weights, every head with its own, or all heads of a
// token together.
enum class QkNorm { kNone, kHead, kOwnHead, kProjection };
enum class Activation { kSilu, kGelu, kClampedSilu };  // kClampedSilu: gpt-oss's swiglu

// How a token's experts are chosen and weighed, from the router's logits; the largest are taken.
enum class Routing {
  kNone,               // the architecture has no experts
  kSoftmax,            // softmax over all experts
  kNormalisedSoftmax,  // and then the weights of those that are taken divided by their sum
  kSoftmaxOfChosen,    // softmax over those that are taken
  kSigmoid,            // of each expert by itself
  kNormalisedSigmoid,
};

// The numbers that RoPE's frequencies are divided by, one for each pair.
enum class RopeFactors {
  kIfThere,
  kNone,
  kRequired,   // rope_freqs has to be there (gemma4)
  kByContext,  // rope_factors_long and _short have to be there (long RoPE)
};

// Rotary position embedding. Pairs are (2i, 2i+1) in mode GGML_ROPE_TYPE_NORMAL, (i, i + n_dims/2) in
// GGML_ROPE_TYPE_NEOX.
struct RopeSpec {
  int mode = 0;
  int n_dims = 0;  // rotated dimensions of a head, the first ones; 0: the layer rotates nothing
  float base = 10000.0F;
  float scale = 1.0F;           // frequency scale: 1 / factor for linear scaling and YaRN
  std::int32_t n_ctx_orig = 0;  // the context before scaling (YaRN, long RoPE)
  bool is_extended = false;     // the model's context is longer than that
  RopeFactors factors = RopeFactors::kIfThere;
  float yarn_ext_factor = 0;  // 1 with YaRN
  float attn_factor = 1;      // magnitude of sine and cosine before ggml's own YaRN factor
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
};

struct FeedForwardSpec {
  bool is_gated = true;        // down(activation(gate x) * up x); else down(activation(up x))
  bool is_gate_in_up = false;  // the file's ffn_up holds gate and up, one after the other
  Activation activation = Activation::kSilu;
  int width = 0;  // of one expert where there are experts
  Routing routing = Routing::kNone;
  int n_expert = 0;       // 0: dense
  int n_expert_used = 0;  // of a token
  float share_scale = 1;  // of the weights, after all else
  int shared_width = 0;   // of an expert that every token takes besides; 0: none
  // gemma4: what every token takes besides is a feed-forward under the names of a dense one; it and the experts have
  // norms of their own before and after, and the router's rows are scaled.
  bool is_dense_beside = false;
  bool has_shared_gate = false;  // the shared expert's output is weighed by a sigmoid of its own
};

enum class RecurrenceKind { kNone, kShortConvolution, kDeltaNet, kMamba2 };  // LFM2's; Qwen3.5's; Granite 4's

// What a recurrent layer does instead of attention.
struct RecurrenceSpec {
  RecurrenceKind kind = RecurrenceKind::kNone;
  int n_taps = 0;  // rows that the convolution sees, the present one included
  // Layers that carry a matrix per value head: heads, and numbers of a query and key, and of a value. Mamba-2 calls
  // keys B, queries C, values x, and a key head a group.
  int n_key_heads = 0, n_value_heads = 0;
  int key_dim = 0, value_dim = 0;

  std::int64_t n_values() const { return std::int64_t{n_value_heads} * value_dim; }
  std::int64_t n_channels(std::int64_t n_embd) const {  // of the convolution
    return kind == RecurrenceKind::kShortConvolution ? n_embd : std::int64_t{2} * n_key_heads * key_dim + n_values();
  }
  // Numbers that the layer carries from token to token: the convolution's, then the matrices.
  std::int64_t convolution_size(std::int64_t n_embd) const { return (n_taps - 1) * n_channels(n_embd); }
  std::int64_t state_size(std::int64_t n_embd) const {
    return kind == RecurrenceKind::kNone ? 0 : convolution_size(n_embd) + n_values() * key_dim;
  }
};

// One part of it, a node of its own: the convolutions of short_convolution.h, delta_rule.h and selective_scan.h.
enum class RecurrentStep { kGatedConvolution, kSiluConvolution, kDeltaRule, kSelectiveScan };

struct LayerSpec {
  LayerKind kind = LayerKind::kFullAttention;
  int kv_layer = -1;  // the layer whose keys and values are attended to: itself, or in kSharedAttention an earlier one

  RecurrenceSpec recurrence = {};  // kRecurrent

  // Attention; all 0 in a recurrent layer.
  int n_head = 0;
  int n_kv_head = 0;
  int key_dim = 0;          // numbers of a query and of a key
  int value_dim = 0;        // numbers of a value and of a head's output
  std::int32_t window = 0;  // tokens that a row sees, itself included; 0: all
  float scale = 0;          // softmax scale
  float soft_cap = 0;       // of scores; 0: none
  bool has_sinks = false;   // a logit per query head beside the scores
  RopeSpec rope = {};
  // Queries are multiplied by 1 + temperature * ln(1 + floor(position / temperature_length)); 0: they are not.
  float temperature = 0;
  std::int32_t temperature_length = 1;
  QkNorm qk_norm = QkNorm::kNone;
  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): every head's keys and values are made of one latent of
  // so many numbers; a key's first rope.n_dims numbers are made of the hidden state, once for all heads. 0: they are
  // not.
  int latent_rank = 0;
  int query_rank = 0;               // of the latent that queries are made of; 0: they are made of the hidden state
  bool has_output_gate = false;     // a head's query is followed by a gate, whose sigmoid its output is multiplied by
  bool is_norm_after_rope = false;  // of queries and keys; else before
  bool has_value_norm = false;      // of values, without weights
  bool is_key_value = false;        // a value is the head's key before its norm and RoPE

  NormSpec norm;
  NormPlacement norms = NormPlacement::kBefore;
  // x + attention(norm x) + feed_forward(norm x), with one norm; else feed_forward reads what attention was added to.
  // Not with experts.
  bool is_parallel = false;
  float residual_scale = 1;  // of what attention and feed-forward add
  FeedForwardSpec feed_forward = {};

  // Biases that must be there; others are taken where the file has them.
  bool has_qkv_bias = false;
  bool has_output_bias = false;
  bool has_norm_bias = false;
  bool has_feed_forward_bias = false;
  const char* ffn_norm_name = "ffn_norm";  // tensor of the norm before the feed-forward
  // Numbers that a token brings to this layer besides the hidden state (gemma3n's and gemma4's per-layer embeddings);
  // 0: none.
  int per_layer_embedding_dim = 0;
  bool has_output_scale = false;  // the hidden state after the layer may be multiplied by a number

  bool owns_entries() const { return n_kv_head > 0 && kind != LayerKind::kSharedAttention; }
  int n_group() const { return n_kv_head > 0 ? n_head / n_kv_head : 0; }
  int q_size() const { return n_head * key_dim; }         // of all query heads
  int k_size() const { return n_kv_head * key_dim; }      // of all keys of a token
  int v_size() const { return n_kv_head * value_dim; }    // of all values of a token
  int output_size() const { return n_head * value_dim; }  // of attention, before the output projection
};

// Layers first, ..., last - 1: what one machine computes of a model. It takes hidden states from the machine before it
// (the first one embeds tokens) and hands them on to the next (the last one makes logits of them).
struct LayerRange {
  int first = 0;
  int last = 0;

  int size() const { return last - first; }
  bool operator==(const LayerRange&) const = default;
};

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
  int n_skipped_layers = 0;  // behind these, in the file alone: they predict further tokens

  int n_layer() const { return static_cast<int>(layers.size()); }
  // All layers have them, or none.
  bool has_per_layer_embeddings() const { return layers.front().per_layer_embedding_dim > 0; }
  LayerRange all_layers() const { return {.first = 0, .last = n_layer()}; }
};

}  // namespace winnow
