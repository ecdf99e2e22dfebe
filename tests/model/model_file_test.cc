// Invalid files: each is refused with an Error that has a message, and none crashes.
#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "expect_error.h"
#include "model/architecture.h"
#include "model/tiny_architectures.h"
#include "model/tiny_model.h"
#include "winnow/entries.h"
#include "winnow/error.h"
#include "winnow/model.h"

namespace winnow::test {
namespace {

void expect_load_error(ErrorCode code, const std::string& part, const std::string& path) {
  for (const bool use_mmap : {true, false}) {
    expect_error(code, part, [&] { Model::load(path, {.use_mmap = use_mmap}); });
  }
}

void expect_refused(ErrorCode code, const std::string& part, const TinyModelOptions& options) {
  const TinyModel file(options);
  expect_load_error(code, part, file.path());
}

std::function<void(gguf_context*)> set_integer(const std::string& key, std::int64_t value) {
  return [=](gguf_context* file) { gguf_set_val_i64(file, key.c_str(), value); };
}

TEST(ModelFileTest, DescribesTheModel) {
  const TinyModel file({.architecture = "qwen3", .n_layer = 2, .sliding_window = 77, .weight_type = GGML_TYPE_Q8_0});
  const ModelInfo info = Model::load(file.path())->info();
  EXPECT_EQ(info.architecture, "qwen3");
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.file_type, "q8_0");
  ASSERT_EQ(info.n_layer(), 2);
  for (const LayerInfo& layer : info.layers) {
    EXPECT_EQ(layer.kind, LayerKind::kSlidingWindow);
    EXPECT_EQ(layer.n_head, 4);
    EXPECT_EQ(layer.n_kv_head, 2);
    EXPECT_EQ(layer.key_dim, 32);
    EXPECT_EQ(layer.value_dim, 32);
    EXPECT_EQ(layer.n_ff, 96);
    EXPECT_EQ(layer.sliding_window, 77);
  }
  EXPECT_EQ(info.n_embd, 64);
  EXPECT_EQ(info.n_vocab, 300);
  EXPECT_EQ(info.n_ctx_train, 2048);
  const std::uint64_t per_layer = 2 * 64 + 2 * 32 + 64 * (128 + 2 * 64) + 128 * 64 + 3 * 64 * 96;
  EXPECT_EQ(info.n_parameters, 2 * 300 * 64 + 64 + 2 * per_layer);
}

TEST(ModelFileTest, FingerprintTellsModelsApart) {
  const auto fingerprint = [](const TinyModelOptions& options) {
    return Model::load(TinyModel(options).path())->info().fingerprint;
  };
  EXPECT_EQ(fingerprint({}), fingerprint({}));
  EXPECT_NE(fingerprint({}), fingerprint({.seed = 2}));
  EXPECT_NE(fingerprint({}), fingerprint({.weight_type = GGML_TYPE_Q8_0}));
  EXPECT_NE(fingerprint({}), fingerprint({.n_layer = 2}));
}

TEST(ModelFileTest, FingerprintOfTheMetadataTellsTheSameTensorsApart) {
  const auto info = [](const TinyModelOptions& options) { return Model::load(TinyModel(options).path())->info(); };
  const auto set_base = [](float base) {
    return [=](gguf_context* file) { gguf_set_val_f32(file, "llama.rope.freq_base", base); };
  };
  const auto begin_nowhere = [](gguf_context* file) { gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", false); };
  const ModelInfo plain = info({});
  std::set<std::uint64_t> all = {plain.metadata_fingerprint};
  for (const TinyModelOptions& options :
       {TinyModelOptions{.edit_metadata = set_base(500)}, TinyModelOptions{.edit_metadata = set_base(501)},
        TinyModelOptions{.n_ctx = 1024}, TinyModelOptions{.control_tokens = {"<|a|>"}},
        TinyModelOptions{.control_tokens = {"<|b|>"}}, TinyModelOptions{.chat_template = kChatmlTemplate},
        TinyModelOptions{.edit_metadata = begin_nowhere}}) {
    const ModelInfo other = info(options);
    EXPECT_EQ(other.fingerprint, plain.fingerprint);
    EXPECT_TRUE(all.insert(other.metadata_fingerprint).second) << all.size();
  }
  // Neither the order of the keys matters, nor what a model is called.
  const auto move = [&](gguf_context* file) {
    gguf_remove_key(file, "llama.rope.freq_base");
    set_base(10000)(file);
    gguf_set_val_str(file, "general.name", "other");
  };
  EXPECT_EQ(info({.edit_metadata = move}).metadata_fingerprint, plain.metadata_fingerprint);
}

TEST(ModelFileTest, TellsItsMetadata) {
  const TinyModel file({.edit_metadata = [](gguf_context* metadata) {
    gguf_set_val_f32(metadata, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gguf_set_val_i16(metadata, "tiny.number", -7);
    gguf_set_val_bool(metadata, "tiny.truth", true);
  }});
  const auto model = Model::load(file.path());
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : model->metadata()) texts[key] = value;
  EXPECT_EQ(texts["general.architecture"], "llama");
  EXPECT_EQ(texts["llama.block_count"], "3");
  EXPECT_EQ(texts["llama.attention.layer_norm_rms_epsilon"], "0.000010");
  EXPECT_EQ(texts["tiny.number"], "-7");
  EXPECT_EQ(texts["tiny.truth"], "true");
  EXPECT_FALSE(texts.contains("tokenizer.ggml.tokens"));
}

TEST(ModelFileTest, NamesItsSpecialTokens) {
  const TinyModel file;
  const auto model = Model::load(file.path());
  EXPECT_EQ(model->special_token(SpecialToken::kBegin), 1);
  EXPECT_EQ(model->special_token(SpecialToken::kEnd), 2);
  EXPECT_EQ(model->special_token(SpecialToken::kNewline), 3 + '\n');
  for (const SpecialToken which :
       {SpecialToken::kInfillPrefix, SpecialToken::kInfillSuffix, SpecialToken::kInfillMiddle}) {
    EXPECT_FALSE(model->special_token(which));
  }
  const TinyModel without({.has_tokenizer = false});
  EXPECT_FALSE(Model::load(without.path())->special_token(SpecialToken::kBegin));
}

TEST(ModelFileTest, MetadataCanBeChanged) {
  const TinyModel file;
  const auto load = [&](std::vector<std::pair<std::string, MetadataValue>> changes) {
    return Model::load(file.path(), {.metadata = std::move(changes)});
  };
  const auto plain = load({}), other = load({{".rope.freq_base", 500.0}});
  EXPECT_NE(plain->info().fingerprint, other->info().fingerprint);
  EXPECT_NE(plain->info().fingerprint, load({{".rope.freq_base", 501.0}})->info().fingerprint);
  EXPECT_NE(other->info().fingerprint, load({{".rope.freq_base", 501.0}})->info().fingerprint);
  EXPECT_EQ(other->info().fingerprint, load({{"llama.rope.freq_base", 500.0}})->info().fingerprint);
  EXPECT_EQ(load({{"llama.context_length", std::int64_t{77}}})->info().n_ctx_train, 77);
  const auto without = load({{"tokenizer.ggml.add_bos_token", false}});
  EXPECT_EQ(plain->tokenize("the", true, false).front(), 1);
  EXPECT_NE(without->tokenize("the", true, false).front(), 1);
  EXPECT_EQ(load({{"tokenizer.ggml.eos_token_id", std::int64_t{9}}})->special_token(SpecialToken::kEnd), 9);

  const auto refuse = [&](ErrorCode code, const std::string& part, const std::string& key, MetadataValue value) {
    expect_error(code, part, [&] { load({{key, value}}); });
  };
  // Overridden values are checked like those of the file, which is not to blame for them.
  const auto blame_caller = [&](const std::string& fault, const std::string& key, MetadataValue value) {
    refuse(ErrorCode::kInvalidArgument, "the metadata given for llama" + key + " " + fault, key, std::move(value));
  };
  blame_caller("is -1, expected 1e-09 to 1e+12", ".rope.freq_base", -1.0);
  blame_caller("is not a number", ".rope.freq_base", "x");
  blame_caller("is not a string", ".rope.scaling.type", std::int64_t{3});
  blame_caller("is -5, expected 1 to 1073741824", ".context_length", std::int64_t{-5});
  blame_caller("is not an integer", ".context_length", 5.5);
  blame_caller("is -2, expected 0 to", ".feed_forward_length", std::int64_t{-2});
  refuse(ErrorCode::kUnsupported, "'odd'", ".rope.scaling.type", "odd");
  const TinyModel wrong(
      {.edit_metadata = [](gguf_context* metadata) { gguf_set_val_str(metadata, "llama.rope.freq_base", "x"); }});
  expect_error(ErrorCode::kBadFile, "rope.freq_base is not a number", [&] { Model::load(wrong.path()); });
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, MetadataValue>>{{"general.alignment", 3.0},
                                                          {"general.architecture", "qwen2"},
                                                          {"split.count", std::int64_t{2}},
                                                          {"qwen2.rope.freq_base", 1.0},
                                                          {"tokenizer.ggml.model", "gpt2"},
                                                          {"tokenizer.ggml.add_bos_token", std::int64_t{1}},
                                                          {"tokenizer.ggml.tokens", true},
                                                          {"", 1.0},
                                                          {".", 1.0}}) {
    refuse(ErrorCode::kInvalidArgument, "cannot be changed", key, value);
  }
}

TEST(ModelFileTest, NoSuchFile) {
  const TemporaryDirectory directory;
  expect_load_error(ErrorCode::kNotFound, "nowhere.gguf", directory.file("nowhere.gguf"));
  expect_load_error(ErrorCode::kNotFound, "open the model", "");
}

TEST(ModelFileTest, NotAModel) {
  const TemporaryDirectory directory;
  expect_load_error(ErrorCode::kBadFile, "not a regular file", directory.file("."));
  expect_load_error(ErrorCode::kBadFile, "0 bytes", directory.write("empty.gguf", ""));
  expect_load_error(ErrorCode::kBadFile, "3 bytes", directory.write("short.gguf", "GGU"));
  expect_load_error(ErrorCode::kBadFile, "begin with GGUF",
                    directory.write("text.gguf", "It was the best of times, it was the worst of times."));
  expect_load_error(ErrorCode::kBadFile, "damaged", directory.write("zeros.gguf", "GGUF" + std::string(200, '\0')));
}

TEST(ModelFileTest, UnsupportedArchitectureNamesThoseSupported) {
  const auto edit = [](gguf_context* file) { gguf_set_val_str(file, "general.architecture", "mamba"); };
  expect_refused(ErrorCode::kUnsupported, "'mamba'", {.edit_metadata = edit});
  for (const Architecture* architecture : architectures()) {
    expect_refused(ErrorCode::kUnsupported, std::string(architecture->name), {.edit_metadata = edit});
  }
  expect_refused(ErrorCode::kBadFile, "general.architecture",
                 {.edit_metadata = [](gguf_context* file) { gguf_remove_key(file, "general.architecture"); }});
  expect_refused(ErrorCode::kBadFile, "not a string",
                 {.edit_metadata = [](gguf_context* file) { gguf_set_val_u32(file, "general.architecture", 3); }});
}

TEST(ModelFileTest, EveryTensorMustBeThere) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.1.attn_q.weight",
        "blk.2.attn_k.weight", "blk.0.attn_v.weight", "blk.2.attn_output.weight", "blk.1.ffn_norm.weight",
        "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.2.ffn_down.weight"}) {
    expect_refused(ErrorCode::kBadFile, name, {.left_out = {name}});
  }
  expect_refused(ErrorCode::kBadFile, "blk.0.attn_output.bias",
                 {.architecture = "starcoder2", .left_out = {"blk.0.attn_output.bias"}});
  expect_refused(ErrorCode::kBadFile, "blk.1.attn_q_norm.weight",
                 {.architecture = "qwen3", .left_out = {"blk.1.attn_q_norm.weight"}});
}

TEST(ModelFileTest, TensorsThatNobodyWouldUseAreRefused) {
  expect_refused(ErrorCode::kUnsupported, "blk.0.ffn_gate_exps.weight", {.extra = {{"blk.0.ffn_gate_exps.weight", 8}}});
  expect_refused(ErrorCode::kUnsupported, "blk.0.ffn_gate_inp.weight", {.extra = {{"blk.0.ffn_gate_inp.weight", 8}}});
  expect_refused(ErrorCode::kUnsupported, "mixture-of-experts",
                 {.architecture = "qwen3", .edit_metadata = set_integer("qwen3.expert_count", 8)});
  expect_refused(ErrorCode::kUnsupported, "blk.0.surprise.weight", {.extra = {{"blk.0.surprise.weight", 8}}});
  expect_refused(ErrorCode::kUnsupported, "blk.7.attn_norm.weight", {.extra = {{"blk.7.attn_norm.weight", 64}}});
  // A llama file with qwen3's norms is another model.
  expect_refused(ErrorCode::kUnsupported, "attn_q_norm", {.extra = {{"blk.0.attn_q_norm.weight", 32}}});
}

TEST(ModelFileTest, AttentionInBothDirectionsIsRefused) {
  const auto set_causal = [](bool is_causal) {
    return [=](gguf_context* file) { gguf_set_val_bool(file, "qwen3.attention.causal", is_causal); };
  };
  expect_refused(ErrorCode::kUnsupported, "attention in both directions",
                 {.architecture = "qwen3", .edit_metadata = set_causal(false)});
  const TinyModel causal({.architecture = "qwen3", .edit_metadata = set_causal(true)});
  EXPECT_NO_THROW(Model::load(causal.path()));
}

TEST(ModelFileTest, TemperaturesOfLatentAttentionAreRefused) {
  TinyModelOptions options = tiny_options("deepseek2");
  options.constants.emplace_back("attention.temperature_scale", 0.1F);
  expect_refused(ErrorCode::kUnsupported, "attention.temperature_scale", options);
}

// llama.cpp has no factors for products with these matrices either.
TEST(ModelFileTest, ScalesThatNobodyWouldUseAreRefused) {
  expect_refused(ErrorCode::kUnsupported, "blk.1.ffn_norm.scale", {.extra = {{"blk.1.ffn_norm.scale", 1}}});
  TinyModelOptions options = tiny_options("deepseek2");
  add_product_scales(options, 1, {"attn_kv_a_mqa"});
  expect_refused(ErrorCode::kUnsupported, "blk.1.attn_kv_a_mqa.scale", options);
  expect_refused(ErrorCode::kBadFile, "[64, 1, 1, 1], expected [1]", {.extra = {{"blk.1.ffn_up.scale", 64}}});
}

TEST(ModelFileTest, ExpertsMustFitTheMetadata) {
  const TinyModelOptions experts{.n_expert = 4, .n_expert_used = 2};
  const auto refuse = [&](ErrorCode code, const std::string& part, const std::string& key, std::int64_t value) {
    TinyModelOptions options = experts;
    options.edit_metadata = set_integer("llama." + key, value);
    expect_refused(code, part, options);
  };
  refuse(ErrorCode::kBadFile, "[64, 4, 1, 1]", "expert_count", 5);
  refuse(ErrorCode::kBadFile, "expert_count is -1", "expert_count", -1);
  refuse(ErrorCode::kBadFile, "expert_count is 9999999", "expert_count", 9999999);
  refuse(ErrorCode::kBadFile, "expert_used_count is 0", "expert_used_count", 0);
  refuse(ErrorCode::kBadFile, "expert_used_count is 5", "expert_used_count", 5);
  refuse(ErrorCode::kBadFile, "expert_feed_forward_length is -1", "expert_feed_forward_length", -1);
  refuse(ErrorCode::kBadFile, "expert_feed_forward_length is 9999999", "expert_feed_forward_length", 9999999);
  refuse(ErrorCode::kBadFile, "ffn_gate_shexp", "expert_shared_feed_forward_length", 8);
  TinyModelOptions without = experts;
  for (const char* name : {"blk.0.ffn_gate_inp.weight", "blk.1.ffn_up_exps.weight", "blk.2.ffn_down_exps.weight"}) {
    without.left_out = {name};
    expect_refused(ErrorCode::kBadFile, name, without);
  }
}

TEST(ModelFileTest, ShapesMustFitTheMetadata) {
  expect_refused(ErrorCode::kBadFile, "[64, 97]", {.edit_metadata = set_integer("llama.feed_forward_length", 97)});
  expect_refused(ErrorCode::kBadFile, "shape", {.edit_metadata = set_integer("llama.embedding_length", 128)});
  expect_refused(ErrorCode::kBadFile, "shape", {.edit_metadata = set_integer("llama.attention.head_count_kv", 4)});
  expect_refused(ErrorCode::kBadFile, "blk.3", {.edit_metadata = set_integer("llama.block_count", 4)});
  expect_refused(ErrorCode::kUnsupported, "blk.2", {.edit_metadata = set_integer("llama.block_count", 2)});
  expect_refused(ErrorCode::kBadFile, "rope_freqs.weight", {.extra = {{"rope_freqs.weight", 5}}});
}

TEST(ModelFileTest, DimensionsOutOfRange) {
  for (const char* key :
       {"block_count", "embedding_length", "feed_forward_length", "context_length", "attention.head_count"}) {
    for (const std::int64_t value :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3,
          std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
      expect_refused(ErrorCode::kBadFile, key, {.edit_metadata = set_integer(std::string("llama.") + key, value)});
    }
  }
  for (const char* key : {"block_count", "embedding_length", "context_length"}) {
    expect_refused(ErrorCode::kBadFile, key, {.edit_metadata = [=](gguf_context* file) {
                     gguf_remove_key(file, (std::string("llama.") + key).c_str());
                   }});
    expect_refused(ErrorCode::kBadFile, key, {.edit_metadata = [=](gguf_context* file) {
                     gguf_set_val_str(file, (std::string("llama.") + key).c_str(), "many");
                   }});
  }
}

TEST(ModelFileTest, LayersThatCannotShare) {
  const auto refused = [](ErrorCode code, const char* text, auto change) {
    TinyModelOptions options = tiny_options("gemma4");
    change(options);
    expect_refused(code, text, options);
  };
  // The last layers before the shared ones must be one with a window and one without, with the same heads.
  refused(ErrorCode::kBadFile, "of a different kind", [](TinyModelOptions& o) { o.n_shared_layers = 4; });
  refused(ErrorCode::kBadFile, "of a different kind", [](TinyModelOptions& o) { o.n_shared_layers = 7; });
  refused(ErrorCode::kBadFile, "layer 5 shares the keys and values of layer",
          [](TinyModelOptions& o) { o.layers[5].n_kv_head = 2; });
  // A layer has 20 numbers, but blocks have 32.
  refused(ErrorCode::kUnsupported, "not a multiple of the 32", [](TinyModelOptions& o) {
    o.layers.resize(8, o.layers.back()), o.n_shared_layers = 4;
    o.type_of = [](const std::string& name) {
      return name == "per_layer_token_embd.weight" ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
    };
  });
}

TEST(ModelFileTest, HeadsThatDoNotFit) {
  expect_refused(ErrorCode::kBadFile, "cannot be shared",
                 {.edit_metadata = set_integer("llama.attention.head_count_kv", 3)});
  expect_refused(ErrorCode::kBadFile, "cannot be shared",
                 {.edit_metadata = set_integer("llama.attention.head_count_kv", 0)});
  expect_refused(ErrorCode::kBadFile, "cannot be shared",
                 {.edit_metadata = set_integer("llama.attention.head_count_kv", -2)});
  expect_refused(ErrorCode::kUnsupported, "head size", {.head_dim = 24});
  expect_refused(ErrorCode::kUnsupported, "head size 528", {.head_dim = kernels::kMaxHeadDim + 16});
  expect_refused(ErrorCode::kUnsupported, "130 query heads",
                 {.n_layer = 1, .n_head = 130, .n_kv_head = 1, .head_dim = 16});
  expect_refused(ErrorCode::kBadFile, "shape", {.edit_metadata = set_integer("llama.attention.value_length", 64)});
  // These numbers are valid only if their upper half is lost.
  for (const char* key : {"attention.head_count_kv", "attention.key_length", "rope.dimension_count"}) {
    const std::int64_t value = (std::int64_t{1} << 32) + (std::string(key) == "attention.head_count_kv" ? 2 : 32);
    const TinyModel file({.edit_metadata = set_integer(std::string("llama.") + key, value)});
    test::expect_error(ErrorCode::kBadFile, "expected", [&] { Model::load(file.path()); });
  }
  const auto set_array = [](std::vector<std::uint32_t> numbers) {
    return [numbers = std::move(numbers)](gguf_context* file) {
      gguf_set_arr_data(file, "llama.attention.head_count_kv", GGUF_TYPE_UINT32, numbers.data(), numbers.size());
    };
  };
  expect_refused(ErrorCode::kBadFile, "shape", {.edit_metadata = set_array({2, 2, 1})});
  expect_refused(ErrorCode::kBadFile, "cannot be shared", {.edit_metadata = set_array({2, 2, 0})});
  expect_refused(ErrorCode::kBadFile, "has 2 numbers, but the model has 3 layers",
                 {.edit_metadata = set_array({2, 2})});
  expect_refused(ErrorCode::kBadFile, "not a list of integers", {.edit_metadata = [](gguf_context* file) {
                   const float numbers[] = {2, 2, 2};
                   gguf_set_arr_data(file, "llama.attention.head_count_kv", GGUF_TYPE_FLOAT32, numbers, 3);
                 }});
}

TEST(ModelFileTest, RopeOutOfRange) {
  for (const int n_rot : {0, -2, 1, 17, 34, 1 << 20}) {
    expect_refused(ErrorCode::kBadFile, "rope.dimension_count",
                   {.edit_metadata = set_integer("llama.rope.dimension_count", n_rot)});
  }
  const auto number = [](const char* key, float value) {
    return [=](gguf_context* file) { gguf_set_val_f32(file, key, value); };
  };
  expect_refused(ErrorCode::kBadFile, "rope.freq_base is -0.5, expected 1e-09 to 1e+12",
                 {.edit_metadata = number("llama.rope.freq_base", -0.5F)});
  for (const float base : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    expect_refused(ErrorCode::kBadFile, "rope.freq_base", {.edit_metadata = number("llama.rope.freq_base", base)});
  }
  expect_refused(ErrorCode::kBadFile, "rope.scaling.factor",
                 {.rope_scaling = "linear", .edit_metadata = number("llama.rope.scaling.factor", -2)});
  expect_refused(ErrorCode::kUnsupported, "none, linear, yarn, longrope", {.rope_scaling = "dynamic"});
  expect_refused(ErrorCode::kBadFile, "rope_factors_long.weight", {.rope_scaling = "longrope"});
  expect_refused(ErrorCode::kUnsupported, "rope.dimension_sections", {.edit_metadata = [](gguf_context* file) {
                   const std::int32_t sections[] = {8, 4, 4, 0};
                   gguf_set_arr_data(file, "llama.rope.dimension_sections", GGUF_TYPE_INT32, sections, 4);
                 }});
  expect_refused(ErrorCode::kBadFile, "original_context_length", {.rope_scaling = "yarn", .rope_original_context = -5});
}

TEST(ModelFileTest, ConstantsThatGgmlAbortsOn) {
  for (const float epsilon : {-1e-5F, 2.0F, std::numeric_limits<float>::quiet_NaN()}) {
    expect_refused(ErrorCode::kBadFile, "layer_norm_rms_epsilon", {.edit_metadata = [=](gguf_context* file) {
                     gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", epsilon);
                   }});
  }
}

TEST(ModelFileTest, MoreTokensThanEmbeddings) {
  expect_refused(ErrorCode::kBadFile, "token", {.edit_metadata = [](gguf_context* file) {
                   std::vector<std::string> names(301);
                   std::vector<const char*> texts;
                   for (std::size_t i = 0; i < names.size(); ++i)
                     texts.push_back((names[i] = "t" + std::to_string(i)).c_str());
                   const std::vector<float> scores(301);
                   const std::vector<std::int32_t> types(301, 1);
                   gguf_set_arr_str(file, "tokenizer.ggml.tokens", texts.data(), texts.size());
                   gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
                   gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
                 }});
}

TEST(ModelFileTest, TruncatedAnywhere) {
  const TinyModel file({.n_layer = 1});
  const std::string bytes = read_bytes(file.path());
  ASSERT_NO_THROW(Model::load(file.path()));
  const TemporaryDirectory directory;
  // Cuts the file densely in the header, sparsely in the weights, and before the last byte.
  std::vector<std::size_t> lengths = {bytes.size() - 1, bytes.size() / 2, bytes.size() * 9 / 10};
  for (std::size_t n = 0; n < 12000; n += n < 1000 ? 23 : 331) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    const std::string path = directory.write("cut.gguf", bytes.substr(0, n));
    expect_error(ErrorCode::kBadFile, "cut.gguf", [&] { Model::load(path); });
  }
}

// A GGUF header written by hand.
class Header {
 public:
  Header(std::uint64_t n_tensors, std::uint64_t n_values) {
    bytes_ = "GGUF";
    number(std::uint32_t{3}).number(n_tensors).number(n_values);
  }
  template <class T>
  Header& number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  Header& text(const std::string& value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  Header& value_text(const std::string& key, const std::string& value) {
    return text(key).number(std::int32_t{GGUF_TYPE_STRING}).text(value);
  }
  std::string bytes() const { return bytes_ + std::string(64, '\0'); }

 private:
  std::string bytes_;
};

TEST(ModelFileTest, AbsurdCountsInTheHeader) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const TemporaryDirectory directory;
  const auto refuse = [&](const Header& header) {
    const std::string path = directory.write("absurd.gguf", header.bytes());
    expect_load_error(ErrorCode::kBadFile, "absurd.gguf", path);
  };
  for (const std::uint64_t n :
       {std::uint64_t{1} << 20, std::uint64_t{1} << 31, std::uint64_t{1} << 40, kMost / 2, kMost}) {
    refuse(Header(n, 0));
    refuse(Header(0, n));
    refuse(Header(n, n));
    refuse(Header(0, 1).number(n));  // length of a key
    refuse(Header(0, 1).text("general.architecture").number(std::int32_t{GGUF_TYPE_STRING}).number(n));  // of a string
    for (const gguf_type type : {GGUF_TYPE_UINT8, GGUF_TYPE_FLOAT64, GGUF_TYPE_STRING, GGUF_TYPE_ARRAY}) {
      refuse(Header(0, 1).text("list").number(std::int32_t{GGUF_TYPE_ARRAY}).number(std::int32_t{type}).number(n));
    }
    // The number is each of a tensor's dimensions.
    refuse(Header(1, 1)
               .value_text("general.architecture", "llama")
               .text("token_embd.weight")
               .number(std::uint32_t{2})
               .number(n)
               .number(n)
               .number(std::int32_t{GGML_TYPE_F32})
               .number(std::uint64_t{0}));
    // The number is the offset of a tensor's data.
    if (n % 32 == 0) {
      refuse(Header(1, 1)
                 .value_text("general.architecture", "llama")
                 .text("token_embd.weight")
                 .number(std::uint32_t{1})
                 .number(std::uint64_t{8})
                 .number(std::int32_t{GGML_TYPE_F32})
                 .number(n));
    }
  }
  refuse(Header(0, 1).text("key").number(std::int32_t{99}));                         // a type that does not exist
  refuse(Header(1, 0).text("t").number(std::uint32_t{9}).number(std::uint64_t{1}));  // too many dimensions
  refuse(Header(1, 0)
             .text("t")
             .number(std::uint32_t{1})
             .number(std::uint64_t{32})
             .number(std::int32_t{9999})
             .number(std::uint64_t{0}));
}

// Any byte of the header may be wrong. A file that loads must have valid info; one that does not load gives an error
// with a message.
TEST(ModelFileTest, FlippedBytesNeverCrash) {
  const TinyModel file({.n_layer = 1});
  const std::string bytes = read_bytes(file.path());
  const TemporaryDirectory directory;
  int n_refused = 0;
  for (std::size_t at = 4; at < 13000; at += at < 1500 ? 7 : 211) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(~damaged[at]);
    const std::string path = directory.write("flipped.gguf", damaged);
    try {
      EXPECT_GT(Model::load(path)->info().n_layer(), 0);
    } catch (const Error& error) {
      ++n_refused;
      EXPECT_NE(std::string(error.what()), "");
    }
  }
  EXPECT_GT(n_refused, 50);
}

}  // namespace
}  // namespace winnow::test
