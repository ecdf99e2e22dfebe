#include "engine/architecture_run.h"

#include <ggml.h>

#include <algorithm>
#include <map>

#include "engine/engine_test_support.h"

namespace winnow::test {

std::vector<ArchitectureVariant> architecture_variants() {
  std::vector<ArchitectureVariant> all;
  const auto add = [&](const std::string& architecture, const std::string& what, auto change) {
    TinyModelOptions options = tiny_options(architecture);
    change(options);
    all.push_back({.name = architecture + (what.empty() ? "" : ", " + what), .options = options});
  };
  const auto as_it_is = [](TinyModelOptions&) {};
  for (const TinyArchitecture& architecture : tiny_architectures()) {
    if (architecture.name != "deci") add(architecture.name, "", as_it_is);
  }
  add("llama", "Llama 3's RoPE factors", [](TinyModelOptions& o) { o.has_rope_freqs = true; });
  add("llama", "biases", [](TinyModelOptions& o) { o.has_all_biases = true; });
  add("llama", "Mixtral", [](TinyModelOptions& o) { o.n_expert = 8, o.n_expert_used = 2; });
  add("llama", "YaRN", [](TinyModelOptions& o) { o.rope_scaling = "yarn"; });
  add("qwen2", "YaRN", [](TinyModelOptions& o) { o.rope_scaling = "yarn"; });
  add("gemma3", "no windows", [](TinyModelOptions& o) {
    o.sliding_window = 0;
    o.constants = {{"final_logit_softcapping", 20}};
  });
  add("gemma4", "31B", [](TinyModelOptions& o) {
    o.per_layer_embedding_dim = o.n_shared_layers = 0, o.n_embd = 64, o.n_ff = 80;
    const TinyLayer sliding = {
        .n_head = 2, .n_kv_head = 2, .key_dim = 256, .value_dim = 256, .n_ff = 80, .slides = true};
    const TinyLayer full = {
        .n_head = 2, .n_kv_head = 1, .key_dim = 512, .value_dim = 512, .n_ff = 80, .is_key_value = true};
    o.layers = {sliding, sliding, full, sliding, full};
  });
  add("gemma4", "with experts", [](TinyModelOptions& o) {
    o.per_layer_embedding_dim = o.n_shared_layers = 0, o.layers.resize(4);
    o.n_expert = 7, o.n_expert_used = 3, o.expert_n_ff = 38;
  });
  add("phi3", "within its original context", [](TinyModelOptions& o) { o.n_ctx = o.rope_original_context = 512; });
  add("granite", "no RoPE", [](TinyModelOptions& o) {
    o.edit_metadata = [](gguf_context* file) { gguf_set_val_bool(file, "granite.rope.scaling.finetuned", false); };
  });
  add("granitemoe", "no shared expert", [](TinyModelOptions& o) { o.shared_n_ff = 0; });
  add("granitehybrid", "dense", [](TinyModelOptions& o) { o.n_expert = o.shared_n_ff = 0; });
  add("qwen35moe", "gate and up in one tensor", [](TinyModelOptions& o) { o.has_fused_experts = true; });
  add("deepseek2", "DeepSeek-V2-Lite", [](TinyModelOptions& o) {  // libllama recognises it by its 27 layers
    o.layers.assign(27, {.n_head = 2, .n_kv_head = 2, .key_dim = 32, .value_dim = 16, .n_ff = 40});
    o.n_embd = 32, o.latent_rank = 24, o.query_rank = 0, o.has_joined_latent = true, o.expert_gating = 0;
    o.expert_n_ff = 20, o.shared_n_ff = 40;
    std::erase_if(o.constants, [](const auto& constant) { return constant.first == "expert_weights_scale"; });
  });
  add("deepseek2", "a layer for further tokens", [](TinyModelOptions& o) {
    o.rope_scaling.clear(), o.has_fused_experts = true;
    std::erase_if(o.constants, [](const auto& constant) { return constant.first.starts_with("rope"); });
    o.extra = {{"blk.5.nextn.enorm.weight", o.n_embd}};
    o.edit_metadata = [](gguf_context* file) {
      gguf_set_val_u32(file, "deepseek2.block_count", 6);
      gguf_set_val_u32(file, "deepseek2.nextn_predict_layers", 1);
    };
  });
  add("olmo2", "OLMo 3", [](TinyModelOptions& o) { o.sliding_window = 24, o.rope_scaling = "yarn"; });
  add("stablelm", "12B", [](TinyModelOptions& o) { o.has_own_head_norms = true; });
  add("exaone4", "32B", [](TinyModelOptions& o) {  // libllama looks for windows in models of 64 layers only
    o.n_layer = 64, o.n_head = 2, o.n_kv_head = 1, o.head_dim = 16, o.n_embd = 32, o.n_ff = 40;
    o.sliding_window = 24;
  });
  return all;
}

namespace {

using Logits = std::vector<std::vector<float>>;

std::string layers_text(const ModelInfo& info) {
  std::map<std::string, int> n_of_kind;
  for (const LayerInfo& layer : info.layers) {
    ++n_of_kind[layer.kind == LayerKind::kRecurrent         ? "recurrent"
                : layer.kind == LayerKind::kSharedAttention ? "that share"
                : layer.sliding_window == 0                 ? "full"
                                                            : "of window " + std::to_string(layer.sliding_window)];
  }
  std::string text;
  for (const auto& [kind, n] : n_of_kind) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + kind;
  return text;
}

double largest_difference(const Logits& a, const Logits& b) {
  if (a.size() != b.size()) throw std::runtime_error("there are logits of different numbers of tokens");
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, max_difference(a[i], b[i]));
  return most;
}

}  // namespace

ArchitectureResult compare_with_libllama(const ArchitectureVariant& variant) {
  const TinyModel file(variant.options);
  const std::vector<Token> tokens = random_tokens(variant.n_tokens, variant.options.n_vocab, 7);
  const Logits expected = libllama_logits(file.path(), tokens);
  float low = expected[0][0], high = low;
  for (const std::vector<float>& row : expected) {
    const auto [least, most] = std::minmax_element(row.begin(), row.end());
    low = std::min(low, *least), high = std::max(high, *most);
  }
  const auto model = Model::load(file.path());
  const auto engine = Engine::create(model, {.n_threads = 2, .n_batch = 48});
  ArchitectureResult result{.layers = layers_text(model->info()), .range = static_cast<double>(high - low)};
  Session session = engine->open(full_options());
  Logits logits;
  session.prefill(tokens, {.on_logits = [&](std::int32_t, std::span<const float> row) {
                    logits.emplace_back(row.begin(), row.end());
                  }});
  result.prefill = largest_difference(logits, expected) / result.range;
  Session decoded = engine->open(full_options());
  result.decode = largest_difference(decode_all(decoded, tokens), expected) / result.range;
  return result;
}

}  // namespace winnow::test
