#include "model/tiny_model.h"

#include <ggml.h>
#include <gguf.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "model/tiny_architectures.h"
#include "winnow/log_softmax.h"

namespace winnow::test {
namespace {

std::vector<TinyLayer> layers_of(const TinyModelOptions& o) {
  if (!o.layers.empty()) return o.layers;
  const TinyLayer layer{
      .n_head = o.n_head, .n_kv_head = o.n_kv_head, .key_dim = o.head_dim, .value_dim = o.head_dim, .n_ff = o.n_ff};
  return std::vector<TinyLayer>(static_cast<std::size_t>(o.n_layer), layer);
}

// Writes the metadata keys of one architecture.
class Metadata {
 public:
  Metadata(gguf_context* file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}
  void integer(const std::string& key, int value) {
    gguf_set_val_u32(file_, (prefix_ + key).c_str(), static_cast<std::uint32_t>(value));
  }
  // One number, or a list where layers differ.
  void integers(const std::string& key, const std::vector<std::int32_t>& values) {
    if (std::equal(values.begin() + 1, values.end(), values.begin())) return integer(key, values.front());
    gguf_set_arr_data(file_, (prefix_ + key).c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  }
  void list(const std::string& key, std::span<const std::int32_t> values) {
    gguf_set_arr_data(file_, (prefix_ + key).c_str(), GGUF_TYPE_INT32, values.data(), values.size());
  }
  void truths(const std::string& key, const std::vector<std::int8_t>& values) {
    gguf_set_arr_data(file_, (prefix_ + key).c_str(), GGUF_TYPE_BOOL, values.data(), values.size());
  }
  void truth(const std::string& key, bool value) { gguf_set_val_bool(file_, (prefix_ + key).c_str(), value); }
  void number(const std::string& key, float value) { gguf_set_val_f32(file_, (prefix_ + key).c_str(), value); }
  void text(const std::string& key, const std::string& value) {
    gguf_set_val_str(file_, (prefix_ + key).c_str(), value.c_str());
  }

 private:
  gguf_context* file_;
  std::string prefix_;
};

// Bytes as SentencePiece's byte tokens, then single characters and a few words: every text can be written.
void add_tokenizer(gguf_context* file, int n_vocab) {
  enum Type : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {kUnknown, kControl, kControl};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
    tokens.emplace_back(name);
    types.push_back(kByte);
  }
  const std::vector<std::string> words = {"\u2581", "e", "t", "a", "o", "n", "h", "th", "the", "\u2581the", "an", "he"};
  for (int i = 0; static_cast<int>(tokens.size()) < n_vocab; ++i) {
    const auto n = static_cast<int>(words.size());
    tokens.push_back(i < n ? words[static_cast<std::size_t>(i)] : "w" + std::to_string(i));
    types.push_back(kNormal);
  }
  std::vector<float> scores(tokens.size(), 0.0F);
  std::vector<const char*> texts;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] == kNormal) scores[i] = -static_cast<float>(i);
    texts.push_back(tokens[i].c_str());
  }
  gguf_set_val_str(file, "tokenizer.ggml.model", "llama");
  gguf_set_arr_str(file, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_val_u32(file, "tokenizer.ggml.unknown_token_id", 0);
  gguf_set_val_u32(file, "tokenizer.ggml.bos_token_id", 1);
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", 2);
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", true);
  gguf_set_val_bool(file, "tokenizer.ggml.add_space_prefix", false);
}

class TensorWriter {
 public:
  TensorWriter(gguf_context* file, const TinyModelOptions& options)
      : file_(file), options_(options), random_(options.seed) {
    context_.reset(ggml_init({.mem_size = memory_for(options), .mem_buffer = nullptr, .no_alloc = false}));
  }

  // Normal values of variance gain^2 / n_in: outputs as large as inputs, times the gain.
  void matrix(const std::string& name, int n_in, int n_out, float gain = 1) {
    const int type = options_.type_of ? options_.type_of(name) : options_.weight_type;
    add(name, values_of(type, n_in, n_out, 1, gain));
  }
  // One matrix for each expert.
  void expert_matrices(const std::string& name, int n_in, int n_out) {
    const int type = options_.expert_weight_type >= 0 ? options_.expert_weight_type : options_.weight_type;
    add(name, values_of(type, n_in, n_out, options_.n_expert, 1));
  }
  // One for each head.
  void matrices(const std::string& name, int n_in, int n_out, int n) {
    add(name, values_of(options_.type_of ? options_.type_of(name) : options_.weight_type, n_in, n_out, n, 1));
  }
  // Of float32, whatever the other weights are.
  void float_matrix(const std::string& name, int n_in, int n_out, float gain) {
    add(name, values_of(GGML_TYPE_F32, n_in, n_out, 1, gain));
  }
  void constants(const std::string& name, int n, int n_rows, float mean, float deviation) {
    const std::vector<float> values = normal(std::int64_t{n} * n_rows, mean, deviation);
    ggml_tensor* tensor = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, n, n_rows);
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    add(name, tensor);
  }

  void vector(const std::string& name, int n, float mean, float deviation) {
    const std::vector<float> values = normal(n, mean, deviation);
    ggml_tensor* tensor = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, n);
    std::copy(values.begin(), values.end(), static_cast<float*>(tensor->data));
    add(name, tensor);
  }

 private:
  struct ContextDeleter {
    void operator()(ggml_context* context) const { ggml_free(context); }
  };

  ggml_tensor* values_of(int weight_type, int n_in, int n_out, int n_matrices, float gain) {
    const auto type = static_cast<ggml_type>(weight_type);
    if (n_in % ggml_blck_size(type) != 0) {
      throw std::runtime_error("rows of " + std::to_string(n_in) + " numbers cannot be " + ggml_type_name(type) +
                               ", whose blocks have " + std::to_string(ggml_blck_size(type)));
    }
    ggml_tensor* tensor = ggml_new_tensor_3d(context_.get(), type, n_in, n_out, n_matrices);
    for (int i = 0; i < n_matrices; ++i) {
      const std::vector<float> values =
          normal(std::int64_t{n_in} * n_out, 0, gain / std::sqrt(static_cast<float>(n_in)));
      std::byte* out = static_cast<std::byte*>(tensor->data) + static_cast<std::size_t>(i) * tensor->nb[2];
      if (type == GGML_TYPE_F32) {
        std::copy(values.begin(), values.end(), reinterpret_cast<float*>(out));
      } else {
        // Some types are made only with the importance of each input.
        const std::vector<float> importance(static_cast<std::size_t>(n_in), 1.0F);
        ggml_quantize_chunk(type, values.data(), out, 0, n_out, n_in,
                            ggml_quantize_requires_imatrix(type) ? importance.data() : nullptr);
      }
    }
    return tensor;
  }

  // Enough for every tensor, with ggml's own overhead.
  static std::size_t memory_for(const TinyModelOptions& o) {
    std::int64_t n_weights = 2LL * o.n_vocab * o.n_embd;
    for (const TinyLayer& layer : layers_of(o)) {
      const std::int64_t dims = layer.key_dim + layer.value_dim;
      n_weights += 3LL * 256 * o.n_embd;  // DeltaNet's
      n_weights += static_cast<std::int64_t>(o.latent_rank + o.query_rank) * (layer.n_head * dims + o.n_embd);
      if (layer.n_kv_head == 0) n_weights += 8LL * o.n_embd * o.n_embd;
      n_weights += (layer.n_head + layer.n_kv_head) * dims * o.n_embd +
                   3LL * layer.n_ff * o.n_embd * std::max(1, o.n_expert) + 3LL * o.shared_n_ff * o.n_embd +
                   std::int64_t{o.n_expert} * (o.n_embd + 3LL * layer.n_ff) + 8LL * (o.n_embd + layer.n_head * dims);
    }
    const auto bytes_of = [&](int weight_type) {
      const auto type = static_cast<ggml_type>(weight_type);
      return static_cast<std::size_t>(n_weights) * ggml_type_size(type) /
             static_cast<std::size_t>(ggml_blck_size(type));
    };
    const int expert_type = o.expert_weight_type >= 0 ? o.expert_weight_type : o.weight_type;
    const std::size_t float_bytes =  // of routers, norms and biases
        4 * (layers_of(o).size() * static_cast<std::size_t>(o.n_expert + 20) * static_cast<std::size_t>(o.n_embd));
    return std::max(bytes_of(o.weight_type), bytes_of(expert_type)) + float_bytes + (std::size_t{64} << 20);
  }

  std::vector<float> normal(std::int64_t n, float mean, float deviation) {
    std::normal_distribution<float> distribution(mean, deviation);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = distribution(random_);
    return values;
  }

  void add(const std::string& name, ggml_tensor* tensor) {
    if (std::find(options_.left_out.begin(), options_.left_out.end(), name) != options_.left_out.end()) return;
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(file_, tensor);
  }

  gguf_context* file_;
  const TinyModelOptions& options_;
  std::mt19937 random_;
  std::unique_ptr<ggml_context, ContextDeleter> context_;
};

void add_norm(TensorWriter& tensors, const TinyArchitecture& a, const std::string& name, int n) {
  tensors.vector(name + ".weight", n, 1, 0.1F);
  if (a.has_norm_bias) tensors.vector(name + ".bias", n, 0, 0.3F);
}

void add_attention(TensorWriter& tensors, const TinyModelOptions& o, const TinyArchitecture& a, const TinyLayer& layer,
                   const std::string& blk) {
  const int q_size = layer.n_head * layer.key_dim;
  const int k_size = layer.n_kv_head * layer.key_dim;
  const int v_size = layer.n_kv_head * layer.value_dim;
  // Queries and keys a little larger: attention that prefers some entries, as in real models.
  if (a.has_fused_qkv) {
    tensors.matrix(blk + "attn_qkv.weight", o.n_embd, q_size + k_size + v_size, 1.3F);
  } else {
    tensors.matrix(blk + "attn_q.weight", o.n_embd, a.has_output_gate ? 2 * q_size : q_size, 1.5F);
    tensors.matrix(blk + "attn_k.weight", o.n_embd, k_size, 1.5F);
    tensors.matrix(blk + "attn_v.weight", o.n_embd, v_size);
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
    tensors.vector(k_norm, is_head ? layer.key_dim : k_size, 1.2F, 0.2F);
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

// Heads of 32 numbers: 2 of keys, 4 of values.
constexpr int kDeltaDim = 32, kDeltaKeyHeads = 2, kDeltaValueHeads = 4, kDeltaTaps = 4;

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

// Mamba-2 is twice as wide as the model (libllama takes nothing else); small models have heads and groups in odd
// numbers.
struct MambaSizes {
  explicit MambaSizes(int n_embd)
      : n_values(2 * n_embd),
        n_heads(n_values / (n_embd < 1024 ? 16 : 64)),
        n_groups(n_heads % 3 == 0 ? 3 : 1),
        n_keys(n_embd < 1024 ? 48 : 128) {}
  int n_channels() const { return n_values + 2 * n_groups * n_keys; }
  int n_values, n_heads, n_groups, n_keys;
};

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
  if (o.n_expert > 0 && index >= o.n_dense_lead) {
    add_experts(tensors, o, a, layer.n_ff, blk);
  } else {
    if (a.has_gate && !a.has_fused_gate) tensors.matrix(blk + "ffn_gate.weight", o.n_embd, layer.n_ff);
    tensors.matrix(blk + "ffn_up.weight", o.n_embd, a.has_fused_gate ? 2 * layer.n_ff : layer.n_ff);
    tensors.matrix(blk + "ffn_down.weight", layer.n_ff, o.n_embd);
    if (a.has_ffn_bias) {
      tensors.vector(blk + "ffn_up.bias", layer.n_ff, 0, 0.3F);
      tensors.vector(blk + "ffn_down.bias", o.n_embd, 0, 0.3F);
    }
  }
  if (a.has_post_norms) add_norm(tensors, a, blk + "post_ffw_norm", o.n_embd);
}

}  // namespace

void write_tiny_model(const TinyModelOptions& o, const std::string& path) {
  struct GgufDeleter {
    void operator()(gguf_context* file) const { gguf_free(file); }
  };
  const std::unique_ptr<gguf_context, GgufDeleter> owner(gguf_init_empty());
  gguf_context* file = owner.get();
  gguf_set_val_str(file, "general.architecture", o.architecture.c_str());
  gguf_set_val_str(file, "general.name", "tiny");
  const TinyArchitecture& architecture = tiny_architecture(o.architecture);
  Metadata metadata(file, o.architecture);
  metadata.integer("vocab_size", o.n_vocab);
  metadata.integer("context_length", o.n_ctx);
  metadata.integer("embedding_length", o.n_embd);
  const std::vector<TinyLayer> layers = layers_of(o);
  const auto each = [&](const std::string& key, int TinyLayer::*field) {
    std::vector<std::int32_t> values;
    for (const TinyLayer& layer : layers) values.push_back(layer.*field);
    metadata.integers(key, values);
  };
  metadata.integer("block_count", static_cast<int>(layers.size()));
  each("feed_forward_length", &TinyLayer::n_ff);
  each("attention.head_count", &TinyLayer::n_head);
  each("attention.head_count_kv", &TinyLayer::n_kv_head);
  each("attention.key_length", &TinyLayer::key_dim);
  each("attention.value_length", &TinyLayer::value_dim);
  if (architecture.has_latent) {
    const TinyLayer& layer = layers.front();
    metadata.integer("attention.kv_lora_rank", o.latent_rank);
    if (o.query_rank > 0) metadata.integer("attention.q_lora_rank", o.query_rank);
    if (!o.has_joined_latent) {
      metadata.integer("attention.head_count_kv", 1);
      metadata.integer("attention.key_length", o.latent_rank + layer.key_dim / architecture.rope_divisor);
      metadata.integer("attention.value_length", o.latent_rank);
      metadata.integer("attention.key_length_mla", layer.key_dim);
      metadata.integer("attention.value_length_mla", layer.value_dim);
    }
    metadata.integer("leading_dense_block_count", o.n_dense_lead);
    metadata.integer("expert_shared_count", o.expert_n_ff > 0 ? o.shared_n_ff / o.expert_n_ff : 1);
    if (o.expert_gating > 0) {
      metadata.integer("expert_gating_func", o.expert_gating);
      metadata.truth("expert_weights_norm", true);
    }
  }
  if (o.soft_cap > 0) metadata.number("attn_logit_softcapping", o.soft_cap);
  int n_rot = layers.front().key_dim;
  std::vector<std::int8_t> slides;
  for (const TinyLayer& layer : layers) {
    n_rot = std::min(n_rot, layer.key_dim);
    slides.push_back(layer.slides ? 1 : 0);
  }
  if (!o.layers.empty() && o.sliding_window > 0) metadata.truths("attention.sliding_window_pattern", slides);
  metadata.number(architecture.has_layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                  1e-5F);
  n_rot /= architecture.rope_divisor;
  metadata.integer("rope.dimension_count", n_rot);
  metadata.number("rope.freq_base", 10000);
  if (o.sliding_window > 0) metadata.integer("attention.sliding_window", o.sliding_window);
  if (!o.rope_scaling.empty()) {
    metadata.text("rope.scaling.type", o.rope_scaling);
    metadata.number("rope.scaling.factor", o.rope_factor);
    metadata.integer("rope.scaling.original_context_length", o.rope_original_context);
  }
  if (architecture.has_delta_net) {
    metadata.integer("ssm.conv_kernel", kDeltaTaps);
    metadata.integer("ssm.inner_size", kDeltaValueHeads * kDeltaDim);
    metadata.integer("ssm.state_size", kDeltaDim);
    metadata.integer("ssm.time_step_rank", kDeltaValueHeads);
    metadata.integer("ssm.group_count", kDeltaKeyHeads);
    const std::int32_t section = (n_rot / 2 + 2) / 3;
    const std::int32_t sections[] = {section, section, section, 0};
    metadata.list("rope.dimension_sections", sections);
  }
  if (architecture.has_mamba2) {
    const MambaSizes sizes(o.n_embd);
    metadata.integer("ssm.conv_kernel", kDeltaTaps);
    metadata.integer("ssm.inner_size", sizes.n_values);
    metadata.integer("ssm.state_size", sizes.n_keys);
    metadata.integer("ssm.time_step_rank", sizes.n_heads);
    metadata.integer("ssm.group_count", sizes.n_groups);
  }
  if (architecture.n_taps > 0) metadata.integer("shortconv.l_cache", architecture.n_taps);
  if (o.n_expert > 0) {
    metadata.integer("expert_count", o.n_expert);
    metadata.integer("expert_used_count", o.n_expert_used);
    metadata.integer("expert_feed_forward_length", o.expert_n_ff > 0 ? o.expert_n_ff : layers.front().n_ff);
    if (o.shared_n_ff > 0 && !architecture.has_latent)
      metadata.integer("expert_shared_feed_forward_length", o.shared_n_ff);
  }
  for (const auto& [key, value] : o.constants) metadata.number(key, value);
  if (o.has_tokenizer) {
    add_tokenizer(file, o.n_vocab);
  } else {
    gguf_set_val_str(file, "tokenizer.ggml.model", "no_vocab");
  }

  TensorWriter tensors(file, o);
  tensors.matrix("token_embd.weight", o.n_embd, o.n_vocab, 2);
  add_norm(tensors, architecture, architecture.output_norm, o.n_embd);
  if (!o.is_output_tied && !architecture.is_tied) tensors.matrix("output.weight", o.n_embd, o.n_vocab, 2);
  if (architecture.has_two_factors) {
    tensors.vector("rope_factors_long.weight", n_rot / 2, 3, 0.5F);
    tensors.vector("rope_factors_short.weight", n_rot / 2, 1.2F, 0.1F);
  }
  if (o.has_rope_freqs) tensors.vector("rope_freqs.weight", n_rot / 2, 3, 0.5F);
  for (std::size_t l = 0; l < layers.size(); ++l) add_layer(tensors, o, architecture, layers[l], static_cast<int>(l));
  for (const auto& [name, n] : o.extra) tensors.vector(name, n, 0, 1);
  if (!o.chat_template.empty()) gguf_set_val_str(file, "tokenizer.chat_template", o.chat_template.c_str());
  if (o.edit_metadata) o.edit_metadata(file);
  if (!gguf_write_to_file(file, path.c_str(), false)) throw std::runtime_error("cannot write " + path);
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "winnow-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryDirectory::write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return file(name);
}

std::vector<std::string> TemporaryDirectory::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_bytes(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

std::vector<Token> random_tokens(int n, int n_vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens;
  for (int i = 0; i < n; ++i) {
    const bool repeats = i > 8 && random() % 4 == 0;
    tokens.push_back(repeats ? tokens[tokens.size() - 1 - random() % 8]
                             : static_cast<Token>(3 + random() % static_cast<std::uint32_t>(n_vocab - 3)));
  }
  return tokens;
}

double max_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) throw std::runtime_error("vectors of different sizes are compared");
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - double{b[i]});
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    most = std::max(most, difference);
  }
  return most;
}

double kl_divergence(std::span<const float> a, std::span<const float> b) {
  return winnow::kl_divergence(a, log_sum_exp(a), b, log_sum_exp(b));
}

Token argmax(std::span<const float> logits) {
  return static_cast<Token>(std::distance(logits.begin(), std::max_element(logits.begin(), logits.end())));
}

}  // namespace winnow::test
