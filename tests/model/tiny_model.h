// Complete models of random weights in temporary GGUF files, small enough to run in milliseconds, for the tests of the
// model and engine layers.
#pragma once

#include <gguf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temporary_directory.h"
#include "winnow/model.h"

namespace winnow::test {

// One layer of a model whose layers differ.
struct TinyLayer {
  int n_head = 4;
  int n_kv_head = 2;
  int key_dim = 32;
  int value_dim = 32;
  int n_ff = 96;
  bool slides = false;
  bool is_key_value = false;  // values are the keys before their norm and RoPE
};

// The chat template of models with <|im_start|>.
inline constexpr const char* kChatmlTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct TinyModelOptions {
  std::string architecture = "llama";  // of tiny_architectures.h
  int n_layer = 3;
  int n_head = 4;
  int n_kv_head = 2;
  int head_dim = 32;
  int n_embd = 64;
  int n_ff = 96;
  int n_vocab = 300;
  int n_ctx = 2048;
  bool is_output_tied = false;      // always for gemma
  bool has_all_biases = false;      // biases of Q, K, V (optional for llama) and of the output projection
  bool has_own_head_norms = false;  // stablelm's 12B: norms of queries and keys, none before the feed-forward
  int sliding_window = 0;
  std::vector<TinyLayer> layers = {};  // replaces n_layer and the sizes above; sliding_window is for those that slide
  bool has_sinks = false;
  int n_expert = 0;  // of width n_ff; only for architectures that can have experts
  int n_expert_used = 0;
  bool has_fused_experts = false;       // gate and up of an expert in one matrix
  int expert_n_ff = 0;                  // width of the experts if it is not n_ff
  int n_dense_lead = 0;                 // layers before those with experts
  int expert_gating = 0;                // 2: sigmoid with a bias for the choice
  int latent_rank = 0, query_rank = 0;  // 0: queries are computed from the hidden state
  bool has_joined_latent = false;       // outputs of keys and values in one tensor, as in older files
  int shared_n_ff = 0;                  // width of an expert that every token uses
  int per_layer_embedding_dim = 0;      // numbers that each token adds in every layer
  int n_shared_layers = 0;              // the last layers, which attend to entries stored by earlier ones
  std::vector<std::pair<std::string, float>> constants = {};  // metadata keys without the architecture's name
  std::string rope_scaling = {};                              // "", "linear", "yarn", "longrope"
  float rope_factor = 4;
  int rope_original_context = 64;
  bool has_rope_freqs = false;
  int weight_type = 0;          // ggml_type of the matrices
  int n_drawn_rows = 0;         // random rows of a matrix, repeated for the others to make large models quickly; 0: all
  int expert_weight_type = -1;  // ggml_type of the experts' matrices; -1: weight_type
  std::function<int(const std::string&)> type_of = {};    // overrides the ggml_type of the matrix with that name
  std::function<float(const std::string&)> gain_of = {};  // additional gain of the outputs of the matrix with that name
  bool has_tokenizer = true;
  std::vector<std::string> control_tokens = {};  // the last ones of the vocabulary
  std::string chat_template = {};
  std::uint32_t seed = 1;
  std::vector<std::string> left_out = {};                 // tensors that are not written
  std::vector<std::pair<std::string, int>> extra = {};    // tensors [n] of f32 that no architecture has
  std::function<void(gguf_context*)> edit_metadata = {};  // called last
};

// A model whose queries and keys are balanced (model/balanced_pairs.h), since they are small beside the keys' biases.
TinyModelOptions with_balanced_layers();

// Adds factors to a layer, as NVFP4's files have them: on the products with matrices ("ffn_up", ...), and on their
// inputs, which are not used.
void add_product_scales(TinyModelOptions& options, int layer, std::initializer_list<const char*> matrices);

// Writes the file. Throws std::runtime_error.
void write_tiny_model(const TinyModelOptions& options, const std::string& path);

// A tiny model's file in a temporary directory.
class TinyModel {
 public:
  explicit TinyModel(const TinyModelOptions& options = {}) : path_(directory_.file("tiny.gguf")) {
    write_tiny_model(options, path_);
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory directory_;
  std::string path_;
};

// Returns n tokens of the vocabulary, with some repetition as in text.
std::vector<Token> random_tokens(int n, int n_vocab, std::uint32_t seed);

// libllama rounds activations to 8 or 16 bits for products with weights of as many bits. With kF32 it gets the same
// weights as f32, so that its result for this file is exact.
enum class OracleWeights { kAsInFile, kF32 };

// Writes the same model with every tensor as f32, which both engines compute without rounding to fewer bits.
void write_f32_copy(const std::string& path, const std::string& copy_path);

// Runs llama_decode of libllama on the same file, with all tokens in one batch (plain attention, f32 KV cache). Throws
// std::runtime_error.
class LibllamaOracle {
 public:
  explicit LibllamaOracle(const std::string& path, OracleWeights weights = OracleWeights::kAsInFile);
  ~LibllamaOracle();

  // Returns [n_tokens - first][n_vocab] logits after the token at `first` and every later one.
  std::vector<std::vector<float>> logits(std::span<const Token> tokens, std::size_t first = 0) const;
  // Writes the model to a file with llama_model_save_to_file.
  void save(const std::string& path) const;
  // Returns the embedding [n_embd] of up to 512 tokens, not normalised.
  std::vector<float> embedding(std::span<const Token> tokens, Pooling pooling) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns LibllamaOracle::logits of one prompt.
std::vector<std::vector<float>> libllama_logits(const std::string& path, std::span<const Token> tokens,
                                                OracleWeights weights = OracleWeights::kAsInFile);

// Returns the KL divergence of softmax(b) from softmax(a), in nats.
double kl_divergence(std::span<const float> a, std::span<const float> b);
double max_difference(std::span<const float> a, std::span<const float> b);
Token argmax(std::span<const float> logits);

}  // namespace winnow::test
