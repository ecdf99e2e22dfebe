// A model's dimensions and constants, as its GGUF metadata states them.
#pragma once

#include <cstdint>

namespace winnow {

enum class Activation { kSilu, kGelu };

struct Hparams {
  int n_layer = 0;
  int n_head = 0;
  int n_kv_head = 0;
  int head_dim = 0;
  int n_embd = 0;
  int n_ff = 0;
  int n_vocab = 0;
  std::int32_t n_ctx_train = 0;
  std::int32_t sliding_window = 0;  // tokens that a row sees, itself included; 0: all
  float norm_eps = 1e-5F;

  // RoPE. Pairs are (2i, 2i+1) in mode GGML_ROPE_TYPE_NORMAL, (i, i + n_rot/2) in GGML_ROPE_TYPE_NEOX.
  int rope_mode = 0;
  int n_rot = 0;  // rotated dimensions of a head
  float rope_base = 10000.0F;
  float rope_scale = 1.0F;      // frequency scale: 1 / factor for linear scaling and YaRN
  std::int32_t n_ctx_orig = 0;  // YaRN: the context before scaling
  float yarn_ext_factor = 0;    // 1 with YaRN
  float rope_attn_factor = 1;   // magnitude of sine and cosine before ggml's own YaRN factor
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;

  float embedding_scale = 1;  // gemma: sqrt(n_embd)
  Activation activation = Activation::kSilu;

  int n_group() const { return n_head / n_kv_head; }
};

}  // namespace winnow
