// The forward pass of every architecture and variant against libllama's on the same file.
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model/tiny_architectures.h"
#include "model/tiny_model.h"
#include "winnow/entries.h"
#include "winnow/session.h"

namespace winnow::test {
namespace {

struct Variant {
  std::string name;
  TinyModelOptions options;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

using Logits = std::vector<std::vector<float>>;

const SessionOptions kF32{.key_type = EntryType::kF32, .value_type = EntryType::kF32};

Session open_session(const TinyModel& file, const EngineOptions& options) {
  return Engine::create(Model::load(file.path()), options)->open(kF32);
}

Logits prefill_logits(const TinyModel& file, const std::vector<Token>& tokens) {
  Session session = open_session(file, {.n_threads = 2, .n_batch = 48});
  Logits logits;
  session.prefill(tokens, {.on_logits = [&](std::int32_t position, std::span<const float> row) {
                    EXPECT_EQ(position, static_cast<std::int32_t>(logits.size()));
                    logits.emplace_back(row.begin(), row.end());
                  }});
  EXPECT_EQ(max_difference(logits.back(), session.logits()), 0);
  return logits;
}

Logits decode_logits(const TinyModel& file, const std::vector<Token>& tokens) {
  Session session = open_session(file, {.n_threads = 2});
  Logits logits;
  for (const Token token : tokens) {
    session.decode(token);
    logits.emplace_back(session.logits().begin(), session.logits().end());
  }
  return logits;
}

double max_difference_of_rows(const Logits& a, const Logits& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, max_difference(a[i], b[i]));
  return most;
}

class ForwardTest : public testing::TestWithParam<Variant> {};

// 150 tokens make several batches with a ragged last one, and positions beyond the original context of scaled variants.
TEST_P(ForwardTest, EqualsLibllama) {
  const TinyModel file(GetParam().options);
  const std::vector<Token> tokens = random_tokens(150, GetParam().options.n_vocab, 7);
  const Logits expected = libllama_logits(file.path(), tokens);
  // ggml looks GELU up by an argument rounded to f16, so that a difference in the last bit may grow to 2^-11.
  const double tolerance = GetParam().options.architecture == "gemma" ? 5e-3 : 1e-3;
  EXPECT_LT(max_difference_of_rows(prefill_logits(file, tokens), expected), tolerance);
  EXPECT_LT(max_difference_of_rows(decode_logits(file, tokens), expected), tolerance);
}

// libllama reads lists of heads and widths only for DeciLM, whose layers are llama's.
TEST(LayersThatDiffer, EqualLibllama) {
  TinyModelOptions options{.layers = {{.n_head = 4, .n_kv_head = 2, .n_ff = 96},
                                      {.n_head = 2, .n_kv_head = 1, .n_ff = 64},
                                      {.n_head = 6, .n_kv_head = 3, .n_ff = 128},
                                      {.n_head = 4, .n_kv_head = 4, .n_ff = 32}}};
  const TinyModel file(options);
  options.architecture = "deci";
  const TinyModel twin(options);
  const std::vector<Token> tokens = random_tokens(150, options.n_vocab, 7);
  const Logits expected = libllama_logits(twin.path(), tokens);
  EXPECT_LT(max_difference_of_rows(prefill_logits(file, tokens), expected), 1e-3);
  EXPECT_LT(max_difference_of_rows(decode_logits(file, tokens), expected), 1e-3);
}

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma"}) {
    const auto add = [&](const std::string& what, auto change) {
      TinyModelOptions options{.architecture = name};
      change(options);
      // libllama accepts projections of other widths only for the other architectures.
      if (options.architecture == "qwen2") options.n_embd = options.n_head * options.head_dim;
      all.push_back({std::string(name) + "_" + what, options});
    };
    add("plain", [](TinyModelOptions&) {});
    add("tied", [](TinyModelOptions& o) { o.is_output_tied = true; });
    add("one_kv_head", [](TinyModelOptions& o) { o.n_kv_head = 1; });
    add("no_groups", [](TinyModelOptions& o) { o.n_kv_head = o.n_head; });
    add("three_per_group", [](TinyModelOptions& o) { o.n_head = 6; });
    add("24_per_group", [](TinyModelOptions& o) { o.n_head = 24, o.n_kv_head = 1; });
    add("small_heads", [](TinyModelOptions& o) { o.head_dim = 16; });
    add("heads_of_80", [](TinyModelOptions& o) { o.head_dim = 80; });
    add("heads_of_128", [](TinyModelOptions& o) { o.head_dim = 128; });
    add("heads_of_256", [](TinyModelOptions& o) { o.n_head = 2, o.n_kv_head = 1, o.head_dim = 256; });
    add("linear", [](TinyModelOptions& o) { o.rope_scaling = "linear"; });
    add("yarn", [](TinyModelOptions& o) { o.rope_scaling = "yarn"; });
    if (std::string(name) != "llama") continue;
    add("largest_group", [](TinyModelOptions& o) {
      o.n_layer = 1, o.n_head = kernels::kMaxGroup, o.n_kv_head = 1, o.head_dim = kernels::kMaxHeadDim;
    });
    add("rope_freqs", [](TinyModelOptions& o) { o.has_rope_freqs = true; });
    add("biases", [](TinyModelOptions& o) { o.has_all_biases = true; });
    add("no_tokenizer", [](TinyModelOptions& o) { o.has_tokenizer = false; });
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Architectures, ForwardTest, testing::ValuesIn(variants()),
                         [](const auto& test) { return test.param.name; });

// Returns models whose files say less or more than those of today's converter, as older ones, those of llama.cpp's
// saver and those of NVFP4 do.
std::vector<Variant> file_variants() {
  std::vector<Variant> all;
  const auto add = [&](const std::string& architecture, const std::string& what, auto change) {
    TinyModelOptions options = tiny_options(architecture);
    change(options);
    std::string name = architecture + "_" + what;
    std::replace(name.begin(), name.end(), '-', '_');
    all.push_back({name, options});
  };
  const auto no_factors = [](TinyModelOptions& o) {
    o.constants = {{"embedding_scale", 0}, {"residual_scale", 0}, {"attention.scale", 0}, {"logit_scale", 2.5F}};
  };
  add("granite", "no_factors", no_factors);
  add("minicpm", "no_factors", no_factors);
  add("granitehybrid", "no_factors", [&](TinyModelOptions& o) {
    no_factors(o);
    o.constants.back().second = 0;
  });
  add("llama", "soft_cap_of_another", [](TinyModelOptions& o) { o.constants = {{"attn_logit_softcapping", 2}}; });
  add("llama", "unset_ext_factor", [](TinyModelOptions& o) {
    o.rope_scaling = "yarn", o.constants = {{"rope.scaling.yarn_ext_factor", -1}};
  });
  add("deepseek2", "no_temperature",
      [](TinyModelOptions& o) { o.constants.emplace_back("attention.temperature_scale", 0.0F); });
  add("deepseek2", "unset_latent_sizes", [](TinyModelOptions& o) {  // libllama knows DeepSeek-V2-Lite by its 27 layers
    o.layers.assign(27, {.n_head = 2, .n_kv_head = 2, .key_dim = 32, .value_dim = 16, .n_ff = 40});
    o.n_embd = 32, o.latent_rank = 24, o.query_rank = 0, o.has_joined_latent = true, o.expert_gating = 0;
    o.expert_n_ff = 20, o.shared_n_ff = 40, o.constants.clear(), o.rope_scaling.clear();
    o.edit_metadata = [](gguf_context* file) {
      gguf_set_val_u32(file, "deepseek2.attention.key_length_mla", 0);
      gguf_set_val_u32(file, "deepseek2.attention.value_length_mla", 0);
    };
  });
  for (const char* architecture : {"qwen2", "qwen2moe"}) {
    add(architecture, "no_biases", [](TinyModelOptions& o) {
      for (int l = 0; l < o.n_layer; ++l) {
        for (const char* bias : {"attn_q.bias", "attn_k.bias", "attn_v.bias"}) {
          o.left_out.push_back("blk." + std::to_string(l) + "." + bias);
        }
      }
    });
  }
  for (const char* architecture : {"qwen2moe", "qwen3moe", "qwen35moe"}) {
    add(architecture, "no_widths_of_experts", [](TinyModelOptions& o) {
      o.expert_n_ff = 38, o.n_ff = o.n_expert_used * o.expert_n_ff;
      if (o.shared_n_ff > 0) o.shared_n_ff = o.n_ff;
      o.edit_metadata = [prefix = o.architecture](gguf_context* file) {
        gguf_remove_key(file, (prefix + ".expert_feed_forward_length").c_str());
        gguf_remove_key(file, (prefix + ".expert_shared_feed_forward_length").c_str());
      };
    });
  }
  add("hunyuan-dense", "one_expert", [](TinyModelOptions& o) {
    o.edit_metadata = [](gguf_context* file) {
      gguf_set_val_u32(file, "hunyuan-dense.expert_count", 1);
      gguf_set_val_u32(file, "hunyuan-dense.expert_used_count", 1);
    };
  });
  add("llama", "scales", [](TinyModelOptions& o) {
    o.has_all_biases = true;
    for (int l = 0; l < o.n_layer; ++l) {
      add_product_scales(o, l, {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"});
    }
  });
  add("phi3", "scales", [](TinyModelOptions& o) { add_product_scales(o, 1, {"attn_qkv"}); });
  add("qwen3moe", "scales", [](TinyModelOptions& o) {
    for (const int l : {0, 2}) add_product_scales(o, l, {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"});
  });
  add("qwen35moe", "scales", [](TinyModelOptions& o) {
    add_product_scales(o, 1,
                       {"attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out", "ffn_gate_shexp", "ffn_up_shexp",
                        "ffn_down_shexp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"});
  });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Files, ForwardTest, testing::ValuesIn(file_variants()),
                         [](const auto& test) { return test.param.name; });

class WeightTypeTest : public testing::TestWithParam<ggml_type> {};

// Returns every type that ggml can read and write.
std::vector<ggml_type> all_weight_types() {
  std::vector<ggml_type> types;
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    const bool is_float = type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    if (!is_float && !ggml_is_quantized(type)) continue;
    const ggml_type_traits* traits = ggml_get_type_traits(type);
    // Types of intermediate results have no products.
    if (traits->to_float == nullptr || ggml_get_type_traits_cpu(type)->vec_dot == nullptr) continue;
    types.push_back(type);
  }
  return types;
}

// Makes every row consist of whole blocks of 256.
TinyModelOptions with_blocks(TinyModelOptions options) {
  options.n_layer = 1, options.n_head = 4, options.n_kv_head = 2, options.head_dim = 64;
  options.n_embd = options.n_ff = 256;
  return options;
}

double mean_kl(const Logits& reference, const Logits& logits) {
  EXPECT_EQ(reference.size(), logits.size());
  double sum = 0;
  for (std::size_t i = 0; i < reference.size(); ++i) sum += kl_divergence(reference[i], logits[i]);
  return sum / static_cast<double>(reference.size());
}

void expect_as_near_as_libllama(const TinyModelOptions& options) {
  const TinyModel file(options);
  const std::vector<Token> tokens = random_tokens(80, 300, 8);
  const Logits exact = libllama_logits(file.path(), tokens, OracleWeights::kF32);
  const double of_libllama = mean_kl(exact, libllama_logits(file.path(), tokens));
  EXPECT_LT(mean_kl(exact, decode_logits(file, tokens)), 2 * of_libllama + 1e-6);
  EXPECT_LT(mean_kl(exact, prefill_logits(file, tokens)), std::max(1e-3, 2 * of_libllama));
}

// Compares with the exact result for these weights. Decoding rounds activations to 8 bits for quantised weights, as
// libllama does, and so does a prompt of this length if winnow multiplies the type itself; otherwise prefill converts
// the weights to bf16 (2^-9 of each) or f32.
//
// Dense models and mixtures in one test: what ggml quantises some types with takes it seconds to make, once a process.
TEST_P(WeightTypeTest, IsAsNearTheExactResultAsLibllama) {
  expect_as_near_as_libllama(with_blocks({.weight_type = GetParam()}));
  for (const char* architecture : {"qwen3moe", "gpt-oss"}) {
    SCOPED_TRACE(architecture);
    TinyModelOptions options = with_blocks(tiny_options(architecture));
    options.n_vocab = 300;
    options.weight_type = options.expert_weight_type = GetParam();
    // Rows use every expert. Otherwise rounding could change the choice of experts, which is no error of a product.
    options.n_expert = options.n_expert_used = 4;
    expect_as_near_as_libllama(options);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, WeightTypeTest, testing::ValuesIn(all_weight_types()),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

// These are mixtures of types as in real files: embeddings and output have more bits than the rest, experts fewer.
TEST(MixedWeightTypes, AreAsNearTheExactResultAsLibllama) {
  TinyModelOptions options = with_blocks({.weight_type = GGML_TYPE_Q4_K});
  options.type_of = [](const std::string& name) {
    if (name == "output.weight" || name.find("attn_v") != std::string::npos) return int{GGML_TYPE_Q6_K};
    if (name == "token_embd.weight") return int{GGML_TYPE_Q5_K};
    return int{name.find("ffn_down") != std::string::npos ? GGML_TYPE_IQ4_XS : GGML_TYPE_Q4_K};
  };
  expect_as_near_as_libllama(options);
}

// Key weights of latent attention are transposed at load, and quantised ones converted to f16.
TEST(MixedWeightTypes, OfLatentAttentionAreAsNearTheExactResultAsLibllama) {
  for (const int type : {GGML_TYPE_Q8_0, GGML_TYPE_BF16}) {
    SCOPED_TRACE(type);
    TinyModelOptions options = tiny_options("deepseek2");
    options.layers.assign(3, {.n_head = 4, .n_kv_head = 4, .key_dim = 64, .value_dim = 32, .n_ff = 128});
    options.n_embd = options.latent_rank = options.query_rank = options.expert_n_ff = 64;
    options.shared_n_ff = 128, options.n_expert = options.n_expert_used = 4, options.n_vocab = 300;
    options.weight_type = options.expert_weight_type = type;
    expect_as_near_as_libllama(options);
  }
}

TEST(ForwardTest, ReadsWeightsIntoMemoryWithTheSameResult) {
  const TinyModel file;
  const std::vector<Token> tokens = random_tokens(40, 300, 9);
  Session session = Engine::create(Model::load(file.path(), {.use_mmap = false}), {.n_threads = 1})->open(kF32);
  session.prefill(tokens);
  Session mapped = Engine::create(Model::load(file.path()), {.n_threads = 1})->open(kF32);
  mapped.prefill(tokens);
  EXPECT_EQ(max_difference(session.logits(), mapped.logits()), 0);
}

// RoPE depends on distances only, so that with one layer the last row's logits depend only on the window's tokens,
// wherever they are. libllama reads no window for these architectures and cannot serve as a reference here.
TEST(SlidingWindowTest, RowsSeeTheirWindowOnly) {
  constexpr int kWindow = 24;
  const TinyModel file({.n_layer = 1, .sliding_window = kWindow});
  const TinyModel without({.n_layer = 1});
  const std::vector<Token> tokens = random_tokens(90, 300, 10);
  const Logits all = prefill_logits(file, tokens);
  const Logits unlimited = prefill_logits(without, tokens);
  EXPECT_LT(max_difference_of_rows(decode_logits(file, tokens), all), 1e-3);
  for (const int last : {10, kWindow - 1, kWindow, 60, 89}) {
    const int first = std::max(0, last + 1 - kWindow);
    const std::vector<Token> seen(tokens.begin() + first, tokens.begin() + last + 1);
    const auto at = static_cast<std::size_t>(last);
    EXPECT_LT(max_difference(prefill_logits(without, seen).back(), all[at]), 1e-3) << last;
    const double difference = max_difference(unlimited[at], all[at]);
    if (first == 0) {
      EXPECT_LT(difference, 1e-4) << last;
    } else {
      EXPECT_GT(difference, 1e-2) << last;
    }
  }
}

}  // namespace
}  // namespace winnow::test
