#include "model/tiny_model.h"

#include <ggml-cpp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>

#include "model/tiny_layers.h"
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
  // Writes one number, or a list if layers differ.
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

// Adds bytes as SentencePiece's byte tokens, then single characters and a few words, so that every text can be written.
void add_tokenizer(gguf_context* file, int n_vocab, const std::vector<std::string>& control_tokens) {
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
  for (std::size_t i = 0; i < control_tokens.size(); ++i) {
    tokens[tokens.size() - control_tokens.size() + i] = control_tokens[i];
    types[tokens.size() - control_tokens.size() + i] = kControl;
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

}  // namespace

void write_tiny_model(const TinyModelOptions& o, const std::string& path) {
  const gguf_context_ptr owner(gguf_init_empty());
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
  if (architecture.has_sliding_sizes) {
    for (const TinyLayer& layer : layers) {
      const std::string kind = layer.slides ? "_swa" : "";
      metadata.integer("attention.key_length" + kind, layer.key_dim);
      metadata.integer("attention.value_length" + kind, layer.value_dim);
      metadata.integer("rope.dimension_count" + kind, layer.key_dim);
    }
    metadata.integer("embedding_length_per_layer_input", o.per_layer_embedding_dim);
    metadata.integer("attention.shared_kv_layers", o.n_shared_layers);
  } else {
    each("attention.key_length", &TinyLayer::key_dim);
    each("attention.value_length", &TinyLayer::value_dim);
  }
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
  if (architecture.has_sliding_sizes) {
    for (const TinyLayer& layer : layers) n_rot = layer.slides ? n_rot : layer.key_dim;
  } else {
    metadata.integer("rope.dimension_count", n_rot);
  }
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
    add_tokenizer(file, o.n_vocab, o.control_tokens);
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
  if (o.per_layer_embedding_dim > 0) {
    const int n_all = o.per_layer_embedding_dim * static_cast<int>(layers.size());
    tensors.matrix("per_layer_token_embd.weight", n_all, o.n_vocab, std::sqrt(static_cast<float>(n_all)));
    tensors.matrix("per_layer_model_proj.weight", o.n_embd, n_all, std::sqrt(static_cast<float>(o.n_embd)));
    tensors.vector("per_layer_proj_norm.weight", o.per_layer_embedding_dim, 1, 0.1F);
  }
  for (std::size_t l = 0; l < layers.size(); ++l) add_layer(tensors, o, architecture, layers[l], static_cast<int>(l));
  for (const auto& [name, n] : o.extra) tensors.vector(name, n, 0, 1);
  if (!o.chat_template.empty()) gguf_set_val_str(file, "tokenizer.chat_template", o.chat_template.c_str());
  if (o.edit_metadata) o.edit_metadata(file);
  if (!gguf_write_to_file(file, path.c_str(), false)) throw std::runtime_error("cannot write " + path);
}

void add_product_scales(TinyModelOptions& options, int layer, std::initializer_list<const char*> matrices) {
  for (const std::string matrix : matrices) {
    const std::string name = "blk." + std::to_string(layer) + "." + matrix;
    const int n = matrix.ends_with("_exps") ? options.n_expert : 1;
    options.extra.insert(options.extra.end(), {{name + ".scale", n}, {name + ".input_scale", n}});
  }
}

TinyModelOptions with_balanced_layers() {
  TinyModelOptions options{.architecture = "qwen2"};
  options.n_embd = options.n_head * options.head_dim;
  options.gain_of = [](const std::string& name) { return name.find("attn_q.weight") != std::string::npos ? 0.02F : 1; };
  return options;
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
