#include "model/tiny_architectures.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace winnow::test {
namespace {

const std::array kArchitectures = {
    TinyArchitecture{.name = "llama"},
    TinyArchitecture{.name = "mistral3"},
    TinyArchitecture{.name = "qwen2", .has_qkv_bias = true, .is_square = true},
    TinyArchitecture{.name = "qwen3", .qk_norm = TinyQkNorm::kHead},
    TinyArchitecture{.name = "gemma", .is_tied = true},
    TinyArchitecture{.name = "gemma2", .has_post_norms = true, .is_tied = true},
    TinyArchitecture{.name = "gemma3", .has_post_norms = true, .qk_norm = TinyQkNorm::kHead},
    TinyArchitecture{.name = "gemma4",
                     .has_post_norms = true,
                     .qk_norm = TinyQkNorm::kHead,
                     .has_sliding_sizes = true,
                     .has_dense_beside = true,
                     .has_output_scale = true},
    TinyArchitecture{
        .name = "phi3", .has_fused_qkv = true, .has_fused_gate = true, .is_square = true, .has_two_factors = true},
    TinyArchitecture{.name = "smollm3"},
    TinyArchitecture{.name = "granite"},
    TinyArchitecture{.name = "minicpm"},
    TinyArchitecture{.name = "olmo2",
                     .has_attn_norm = false,
                     .ffn_norm = "",
                     .has_post_norms = true,
                     .qk_norm = TinyQkNorm::kProjection,
                     .is_square = true},
    TinyArchitecture{.name = "cohere2", .has_layer_norm = true, .ffn_norm = "", .is_tied = true, .is_square = true},
    TinyArchitecture{.name = "starcoder2",
                     .has_layer_norm = true,
                     .has_norm_bias = true,
                     .has_qkv_bias = true,
                     .has_output_bias = true,
                     .has_gate = false,
                     .has_ffn_bias = true,
                     .is_square = true},
    TinyArchitecture{
        .name = "stablelm", .has_layer_norm = true, .has_norm_bias = true, .is_square = true, .rope_divisor = 4},
    TinyArchitecture{.name = "glm4", .has_post_norms = true, .has_fused_gate = true, .rope_divisor = 2},
    TinyArchitecture{.name = "internlm2", .is_square = true},
    TinyArchitecture{.name = "ernie4_5"},
    TinyArchitecture{.name = "seed_oss", .ffn_norm = "post_attention_norm", .has_qkv_bias = true},
    TinyArchitecture{.name = "hunyuan-dense", .qk_norm = TinyQkNorm::kHead},
    TinyArchitecture{.name = "exaone4",
                     .has_attn_norm = false,
                     .ffn_norm = "",
                     .has_post_norms = true,
                     .qk_norm = TinyQkNorm::kHead,
                     .is_square = true},
    TinyArchitecture{
        .name = "lfm2", .output_norm = "token_embd_norm", .n_taps = 4, .qk_norm = TinyQkNorm::kHead, .is_square = true},
    TinyArchitecture{.name = "qwen35",
                     .ffn_norm = "post_attention_norm",
                     .qk_norm = TinyQkNorm::kHead,
                     .has_output_gate = true,
                     .has_delta_net = true,
                     .rope_divisor = 2},
    TinyArchitecture{.name = "qwen35moe",
                     .ffn_norm = "post_attention_norm",
                     .qk_norm = TinyQkNorm::kHead,
                     .has_experts = true,
                     .has_shared_gate = true,
                     .has_output_gate = true,
                     .has_delta_net = true,
                     .rope_divisor = 2},
    TinyArchitecture{.name = "granitehybrid", .has_experts = true, .has_mamba2 = true},
    TinyArchitecture{
        .name = "qwen2moe", .has_qkv_bias = true, .has_experts = true, .has_shared_gate = true, .is_square = true},
    TinyArchitecture{.name = "qwen3moe", .qk_norm = TinyQkNorm::kHead, .has_experts = true},
    TinyArchitecture{.name = "olmoe", .qk_norm = TinyQkNorm::kProjection, .has_experts = true, .is_square = true},
    TinyArchitecture{.name = "granitemoe", .has_experts = true},
    TinyArchitecture{.name = "gpt-oss",
                     .ffn_norm = "post_attention_norm",
                     .has_qkv_bias = true,
                     .has_output_bias = true,
                     .has_ffn_bias = true,
                     .has_experts = true,
                     .has_sinks = true},
    TinyArchitecture{.name = "deepseek2", .has_experts = true, .has_latent = true, .rope_divisor = 2},
    // Not an architecture of winnow: the one for which libllama reads lists of heads and widths, with llama's layers.
    TinyArchitecture{.name = "deci"},
};

}  // namespace

std::span<const TinyArchitecture> tiny_architectures() { return kArchitectures; }

const TinyArchitecture& tiny_architecture(const std::string& name) {
  const auto found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                  [&](const TinyArchitecture& architecture) { return architecture.name == name; });
  if (found == kArchitectures.end()) throw std::runtime_error("there is no architecture '" + name + "'");
  return *found;
}

TinyModelOptions tiny_options(const std::string& name) {
  const TinyArchitecture& architecture = tiny_architecture(name);
  TinyModelOptions o{.architecture = name,
                     .n_layer = 5,
                     .n_head = 6,
                     .n_kv_head = 2,
                     .head_dim = 48,
                     .n_embd = 72,
                     .n_ff = 110,
                     .n_vocab = 307};
  if (architecture.has_experts) o.n_expert = 7, o.n_expert_used = 3;
  const auto constants = [&](std::vector<std::pair<std::string, float>> values) { o.constants = std::move(values); };
  const auto slide = [&](const std::string& scaling = {}) { o.sliding_window = 24, o.rope_scaling = scaling; };
  if (name == "qwen2moe" || name == "qwen35moe") o.shared_n_ff = 90;
  const bool is_granite_moe = name == "granitemoe" || name == "granitehybrid";
  if (is_granite_moe) o.shared_n_ff = 52;
  if (name == "olmoe") o.n_kv_head = o.n_head;  // libllama takes k_norm to be as wide as the model
  if (name == "granite" || is_granite_moe || name == "minicpm") {
    constants({{"embedding_scale", 3}, {"residual_scale", 0.4F}, {"logit_scale", 2.5F}});
    if (name != "minicpm") o.constants.emplace_back("attention.scale", 0.2F);
  }
  if (name == "gemma2") slide(), constants({{"attn_logit_softcapping", 5}, {"final_logit_softcapping", 20}});
  if (name == "gemma3") {
    slide("linear");
    o.n_layer = 8;
    constants({{"rope.freq_base_swa", 3000}, {"final_logit_softcapping", 20}});
  }
  if (name == "gemma4") {
    slide();
    const TinyLayer sliding = {
        .n_head = 6, .n_kv_head = 2, .key_dim = 48, .value_dim = 48, .n_ff = 110, .slides = true};
    const TinyLayer full = {.n_head = 6, .n_kv_head = 1, .key_dim = 64, .value_dim = 64, .n_ff = 110};
    TinyLayer key_value = full;
    key_value.is_key_value = true;
    o.layers = {sliding, key_value, sliding, full, sliding, full, full};
    for (std::size_t l = 4; l < o.layers.size(); ++l) o.layers[l].n_ff = 130;
    o.per_layer_embedding_dim = 20, o.n_shared_layers = 3, o.has_rope_freqs = true;
    constants({{"rope.freq_base_swa", 3000}, {"final_logit_softcapping", 20}});
  }
  if (name == "cohere2") slide(), constants({{"logit_scale", 0.25F}});
  if (name == "gpt-oss") slide("yarn");
  if (name == "mistral3") {
    o.rope_scaling = "yarn";
    constants({{"attention.temperature_scale", 0.3F}, {"rope.scaling.yarn_log_multiplier", 0.7F}});
  }
  if (name == "phi3") o.rope_scaling = "longrope", constants({{"rope.scaling.attn_factor", 1.2F}});
  if (name == "hunyuan-dense") constants({{"rope.scaling.alpha", 50}});
  if (name == "lfm2" || architecture.has_mamba2) {
    for (const int n_kv_head : {0, 0, 2, 0, 2}) {
      o.layers.push_back({.n_head = 6, .n_kv_head = n_kv_head, .key_dim = 48, .value_dim = 48, .n_ff = 110});
    }
  }
  if (architecture.has_latent) {
    o.layers.assign(5, {.n_head = 6, .n_kv_head = 6, .key_dim = 48, .value_dim = 32, .n_ff = 110});
    o.latent_rank = 40, o.query_rank = 56, o.n_dense_lead = 1, o.expert_n_ff = 38, o.shared_n_ff = 2 * o.expert_n_ff;
    o.expert_gating = 2, o.rope_scaling = "yarn";
    constants({{"expert_weights_scale", 2.5F}, {"rope.scaling.yarn_log_multiplier", 0.07F}});
  }
  if (architecture.is_square) o.n_embd = o.n_head * o.head_dim;
  return o;
}

}  // namespace winnow::test
