#include "model/tiny_layers.h"

#include <cmath>

namespace winnow::test {

void add_norm(TensorWriter& tensors, const TinyArchitecture& a, const std::string& name, int n) {
  tensors.vector(name + ".weight", n, 1, 0.1F);
  if (a.has_norm_bias) tensors.vector(name + ".bias", n, 0, 0.3F);
}

namespace {

void add_attention(TensorWriter& tensors, const TinyModelOptions& o, const TinyArchitecture& a, const TinyLayer& layer,
                   const std::string& blk) {
  const int q_size = layer.n_head * layer.key_dim;
  const int k_size = layer.n_kv_head * layer.key_dim;
  const int v_size = layer.n_kv_head * layer.value_dim;
  // Queries and keys are slightly larger, so that attention prefers some entries as in real models.
  if (a.has_fused_qkv) {
    tensors.matrix(blk + "attn_qkv.weight", o.n_embd, q_size + k_size + v_size, 1.3F);
  } else {
    tensors.matrix(blk + "attn_q.weight", o.n_embd, a.has_output_gate ? 2 * q_size : q_size, 1.5F);
    tensors.matrix(blk + "attn_k.weight", o.n_embd, k_size, 1.5F);
    if (!layer.is_key_value) tensors.matrix(blk + "attn_v.weight", o.n_embd, v_size);
  }
  tensors.matrix(blk + "attn_output.weight", layer.n_head * layer.value_dim, o.n_embd);
  if (o.has_sinks || a.has_sinks) tensors.vector(blk + "attn_sinks.weight", layer.n_head, 0.5F, 1);
  if (a.has_qkv_bias || o.has_all_biases) {
    if (a.has_fused_qkv) {
      tensors.vector(blk + "attn_qkv.bias", q_size + k_size + v_size, 0, 0.3F);
    } else {
      tensors.vector(blk + "attn_q.bias", q_size, 0, 0.3F);
      tensors.vector(blk + "attn_k.bias", k_size, 0, 0.3F);
      tensors.vector(blk + "attn_v.bias", v_size, 0, 0.3F);
    }
  }
  if (a.has_output_bias || o.has_all_biases) tensors.vector(blk + "attn_output.bias", o.n_embd, 0, 0.3F);
  const std::string q_norm = blk + "attn_q_norm.weight", k_norm = blk + "attn_k_norm.weight";
  if (o.has_own_head_norms) {
    tensors.constants(q_norm, layer.key_dim, layer.n_head, 1.2F, 0.2F);
    tensors.constants(k_norm, layer.key_dim, layer.n_kv_head, 1.2F, 0.2F);
  } else if (a.qk_norm != TinyQkNorm::kNone) {
    const bool is_head = a.qk_norm == TinyQkNorm::kHead;
    tensors.vector(q_norm, is_head ? layer.key_dim : q_size, 1.2F, 0.2F);
    // If scores are not divided by the root of a head's size, the weights are.
    const float scale = a.has_sliding_sizes ? std::sqrt(static_cast<float>(layer.key_dim)) : 1;
    tensors.vector(k_norm, is_head ? layer.key_dim : k_size, 1.2F / scale, 0.2F / scale);
  }
}

void add_latent_attention(TensorWriter& tensors, const TinyModelOptions& o, const TinyLayer& layer, int n_rot,
                          const std::string& blk) {
  const int n_fixed = layer.key_dim - n_rot, q_size = layer.n_head * layer.key_dim;
  if (o.query_rank > 0) {
    tensors.matrix(blk + "attn_q_a.weight", o.n_embd, o.query_rank);
    tensors.vector(blk + "attn_q_a_norm.weight", o.query_rank, 1, 0.1F);
    tensors.matrix(blk + "attn_q_b.weight", o.query_rank, q_size, 1.5F);
  } else {
    tensors.matrix(blk + "attn_q.weight", o.n_embd, q_size, 1.5F);
  }
  tensors.matrix(blk + "attn_kv_a_mqa.weight", o.n_embd, o.latent_rank + n_rot, 1.5F);
  tensors.vector(blk + "attn_kv_a_norm.weight", o.latent_rank, 1, 0.1F);
  if (o.has_joined_latent) {
    tensors.matrix(blk + "attn_kv_b.weight", o.latent_rank, layer.n_head * (n_fixed + layer.value_dim));
  } else {
    tensors.matrices(blk + "attn_k_b.weight", n_fixed, o.latent_rank, layer.n_head);
    tensors.matrices(blk + "attn_v_b.weight", o.latent_rank, layer.value_dim, layer.n_head);
  }
  tensors.matrix(blk + "attn_output.weight", layer.n_head * layer.value_dim, o.n_embd);
}

void add_delta_net(TensorWriter& tensors, const TinyModelOptions& o, const std::string& blk) {
  constexpr int kValues = kDeltaValueHeads * kDeltaDim, kChannels = 2 * kDeltaKeyHeads * kDeltaDim + kValues;
  tensors.matrix(blk + "attn_qkv.weight", o.n_embd, kChannels);
  tensors.matrix(blk + "attn_gate.weight", o.n_embd, kValues);
  tensors.constants(blk + "ssm_conv1d.weight", kDeltaTaps, kChannels, 0, 0.7F);
  tensors.vector(blk + "ssm_dt.bias", kDeltaValueHeads, 0, 0.5F);
  tensors.vector(blk + "ssm_a", kDeltaValueHeads, -0.3F, 0.05F);
  tensors.matrix(blk + "ssm_beta.weight", o.n_embd, kDeltaValueHeads);
  tensors.matrix(blk + "ssm_alpha.weight", o.n_embd, kDeltaValueHeads);
  tensors.vector(blk + "ssm_norm.weight", kDeltaDim, 1, 0.1F);
  tensors.matrix(blk + "ssm_out.weight", kValues, o.n_embd);
}

void add_mamba2(TensorWriter& tensors, const TinyModelOptions& o, const std::string& blk) {
  const MambaSizes sizes(o.n_embd);
  tensors.matrix(blk + "ssm_in.weight", o.n_embd, sizes.n_values + sizes.n_channels() + sizes.n_heads);
  tensors.constants(blk + "ssm_conv1d.weight", kDeltaTaps, sizes.n_channels(), 0, 0.7F);
  tensors.vector(blk + "ssm_conv1d.bias", sizes.n_channels(), 0, 0.3F);
  tensors.vector(blk + "ssm_dt.bias", sizes.n_heads, 0, 0.5F);
  tensors.constants(blk + "ssm_a", 1, sizes.n_heads, -0.3F, 0.05F);
  tensors.constants(blk + "ssm_d", 1, sizes.n_heads, 1, 0.3F);
  tensors.constants(blk + "ssm_norm.weight", sizes.n_values / sizes.n_groups, sizes.n_groups, 1, 0.1F);
  tensors.matrix(blk + "ssm_out.weight", sizes.n_values, o.n_embd);
}

void add_experts(TensorWriter& tensors, const TinyModelOptions& o, const TinyArchitecture& a, int n_ff,
                 const std::string& blk) {
  if (o.expert_n_ff > 0) n_ff = o.expert_n_ff;
  if (o.expert_gating == 2) tensors.vector(blk + "exp_probs_b.bias", o.n_expert, 0, 0.2F);
  tensors.float_matrix(blk + "ffn_gate_inp.weight", o.n_embd, o.n_expert, 2);
  if (o.has_fused_experts) {
    tensors.expert_matrices(blk + "ffn_gate_up_exps.weight", o.n_embd, 2 * n_ff);
  } else {
    tensors.expert_matrices(blk + "ffn_gate_exps.weight", o.n_embd, n_ff);
    tensors.expert_matrices(blk + "ffn_up_exps.weight", o.n_embd, n_ff);
  }
  tensors.expert_matrices(blk + "ffn_down_exps.weight", n_ff, o.n_embd);
  if (a.has_dense_beside) {
    tensors.vector(blk + "ffn_gate_inp.scale", o.n_embd, 1, 0.3F);
    tensors.vector(blk + "ffn_down_exps.scale", o.n_expert, 1, 0.3F);
    for (const char* name : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"}) {
      add_norm(tensors, a, blk + name, o.n_embd);
    }
  }
  if (a.has_ffn_bias) {
    tensors.vector(blk + "ffn_gate_inp.bias", o.n_expert, 0, 0.5F);
    tensors.constants(blk + "ffn_gate_exps.bias", n_ff, o.n_expert, 0, 0.3F);
    tensors.constants(blk + "ffn_up_exps.bias", n_ff, o.n_expert, 0, 0.3F);
    tensors.constants(blk + "ffn_down_exps.bias", o.n_embd, o.n_expert, 0, 0.3F);
  }
  if (o.shared_n_ff == 0) return;
  if (a.has_shared_gate) tensors.vector(blk + "ffn_gate_inp_shexp.weight", o.n_embd, 0, 0.2F);
  tensors.matrix(blk + "ffn_gate_shexp.weight", o.n_embd, o.shared_n_ff);
  tensors.matrix(blk + "ffn_up_shexp.weight", o.n_embd, o.shared_n_ff);
  tensors.matrix(blk + "ffn_down_shexp.weight", o.shared_n_ff, o.n_embd);
}

}  // namespace

void add_layer(TensorWriter& tensors, const TinyModelOptions& o, const TinyArchitecture& a, const TinyLayer& layer,
               int index) {
  const std::string blk = "blk." + std::to_string(index) + ".";
  if (a.has_attn_norm) add_norm(tensors, a, blk + "attn_norm", o.n_embd);
  if (a.has_delta_net && (index + 1) % 4 != 0) {
    add_delta_net(tensors, o, blk);
  } else if (a.has_latent) {
    add_latent_attention(tensors, o, layer, layer.key_dim / a.rope_divisor, blk);
  } else if (layer.n_kv_head > 0) {
    add_attention(tensors, o, a, layer, blk);
  } else if (a.has_mamba2) {
    add_mamba2(tensors, o, blk);
  } else {
    tensors.constants(blk + "shortconv.conv.weight", a.n_taps, o.n_embd, 0, 0.7F);
    tensors.matrix(blk + "shortconv.in_proj.weight", o.n_embd, 3 * o.n_embd);
    tensors.matrix(blk + "shortconv.out_proj.weight", o.n_embd, o.n_embd);
  }
  if (a.has_post_norms) add_norm(tensors, a, blk + "post_attention_norm", o.n_embd);
  if (!a.ffn_norm.empty() && !o.has_own_head_norms) add_norm(tensors, a, blk + a.ffn_norm, o.n_embd);
  const bool has_experts = o.n_expert > 0 && index >= o.n_dense_lead;
  if (has_experts) add_experts(tensors, o, a, layer.n_ff, blk);
  if (!has_experts || a.has_dense_beside) {
    if (a.has_gate && !a.has_fused_gate) tensors.matrix(blk + "ffn_gate.weight", o.n_embd, layer.n_ff);
    tensors.matrix(blk + "ffn_up.weight", o.n_embd, a.has_fused_gate ? 2 * layer.n_ff : layer.n_ff);
    tensors.matrix(blk + "ffn_down.weight", layer.n_ff, o.n_embd);
    if (a.has_ffn_bias) {
      tensors.vector(blk + "ffn_up.bias", layer.n_ff, 0, 0.3F);
      tensors.vector(blk + "ffn_down.bias", o.n_embd, 0, 0.3F);
    }
  }
  if (a.has_post_norms) add_norm(tensors, a, blk + "post_ffw_norm", o.n_embd);
  if (o.per_layer_embedding_dim > 0) {
    tensors.matrix(blk + "inp_gate.weight", o.n_embd, o.per_layer_embedding_dim);
    tensors.matrix(blk + "proj.weight", o.per_layer_embedding_dim, o.n_embd);
    add_norm(tensors, a, blk + "post_norm", o.n_embd);
  }
  if (a.has_output_scale) tensors.vector(blk + "layer_output_scale.weight", 1, 0.7F, 0.1F);
}

}  // namespace winnow::test
