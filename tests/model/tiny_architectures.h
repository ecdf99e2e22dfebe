// The contents of every architecture's files, for the writer of tiny models. They are written down independently of
// src/, so that libllama, which refuses a file with a missing or surplus tensor, checks both.
#pragma once

#include <span>
#include <string>

#include "model/tiny_model.h"

namespace winnow::test {

enum class TinyQkNorm { kNone, kHead, kOwnHead, kProjection };

struct TinyArchitecture {
  std::string name;
  bool has_layer_norm = false;  // else RMS norm
  bool has_norm_bias = false;
  bool has_attn_norm = true;  // before attention
  std::string output_norm = "output_norm";
  int n_taps = 0;                     // taps of the convolution in layers without KV heads
  std::string ffn_norm = "ffn_norm";  // "": none
  bool has_post_norms = false;
  bool has_fused_qkv = false;
  bool has_qkv_bias = false;
  bool has_output_bias = false;
  TinyQkNorm qk_norm = TinyQkNorm::kNone;
  bool has_gate = true;
  bool has_fused_gate = false;
  bool has_ffn_bias = false;
  bool has_experts = false;
  bool has_shared_gate = false;
  bool has_sinks = false;
  bool has_sliding_sizes = false;  // heads of layers with a window have different sizes
  bool has_dense_beside = false;   // experts work in parallel to the feed-forward, with separate norms
  bool has_output_scale = false;   // a factor for the hidden state after a layer
  bool has_output_gate = false;
  bool has_delta_net = false;  // in three layers of four
  bool has_mamba2 = false;     // in layers without KV heads
  bool has_latent = false;     // keys and values are computed from a latent
  bool is_tied = false;
  // libllama requires the model to be as wide as all query heads together.
  bool is_square = false;
  int rope_divisor = 1;          // 1 / rope_divisor of a head's dimensions is rotated
  bool has_two_factors = false;  // rope_factors_long and _short
};

std::span<const TinyArchitecture> tiny_architectures();
// Throws std::runtime_error for an unknown name.
const TinyArchitecture& tiny_architecture(const std::string& name);

// Returns a model of this architecture with every optional part that it can have, in odd shapes, with windows of 24 and
// constants that matter.
TinyModelOptions tiny_options(const std::string& name);

}  // namespace winnow::test
