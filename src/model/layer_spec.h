// What the layers of a model are: the only place where their dimensions and constants stand. An architecture fills the
// table from the file's metadata; everything else (weights, graphs, caches, budgets, files) follows it.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow/model.h"

namespace winnow {

enum class NormKind { kRms };
enum class FeedForwardKind { kGated };  // down(activation(gate x) * up x)
enum class Activation { kSilu, kGelu };

// Rotary position embedding. Pairs are (2i, 2i+1) in mode GGML_ROPE_TYPE_NORMAL, (i, i + n_dims/2) in
// GGML_ROPE_TYPE_NEOX.
struct RopeSpec {
  int mode = 0;
  int n_dims = 0;  // rotated dimensions of a head, the first ones; 0: the layer rotates nothing
  float base = 10000.0F;
  float scale = 1.0F;           // frequency scale: 1 / factor for linear scaling and YaRN
  std::int32_t n_ctx_orig = 0;  // YaRN: the context before scaling
  float yarn_ext_factor = 0;    // 1 with YaRN
  float attn_factor = 1;        // magnitude of sine and cosine before ggml's own YaRN factor
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
};

struct FeedForwardSpec {
  FeedForwardKind kind = FeedForwardKind::kGated;
  Activation activation = Activation::kSilu;
  int width = 0;          // of one expert where there are experts
  int n_expert = 0;       // 0: dense
  int n_expert_used = 0;  // of a token
};

struct LayerSpec {
  LayerKind kind = LayerKind::kFullAttention;

  // Attention; all 0 in a recurrent layer.
  int n_head = 0;
  int n_kv_head = 0;
  int key_dim = 0;          // numbers of a query and of a key
  int value_dim = 0;        // numbers of a value and of a head's output
  std::int32_t window = 0;  // kSlidingWindow: tokens that a row sees, itself included
  float scale = 0;          // softmax scale
  float soft_cap = 0;       // of scores; 0: none
  bool has_sinks = false;   // a logit per query head beside the scores
  RopeSpec rope = {};
  bool has_qkv_bias = false;  // must be there
  bool has_qk_norm = false;   // every query and key head is normalised before rotation

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5F;
  FeedForwardSpec feed_forward = {};

  int n_group() const { return n_head / n_kv_head; }
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
  float norm_eps = 1e-5F;     // of the norm before the output
  float embedding_scale = 1;  // gemma: sqrt(n_embd)
  std::vector<LayerSpec> layers;

  int n_layer() const { return static_cast<int>(layers.size()); }
  LayerRange all_layers() const { return {.first = 0, .last = n_layer()}; }
};

}  // namespace winnow
