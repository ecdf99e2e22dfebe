// The tensors of a model under the names that the graph builders use.
#pragma once

#include <vector>

#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/layer_spec.h"

struct ggml_tensor;

namespace winnow {

// All tensors point into the file's mapping. Optional ones are null where the file has none.
struct LayerWeights {
  int layer = 0;
  ggml_tensor* attn_norm = nullptr;  // [n_embd]
  ggml_tensor* wq = nullptr;         // [n_embd, n_head * key_dim]
  ggml_tensor* wk = nullptr;         // [n_embd, n_kv_head * key_dim]
  ggml_tensor* wv = nullptr;         // [n_embd, n_kv_head * value_dim]
  ggml_tensor* wo = nullptr;         // [n_head * value_dim, n_embd]
  ggml_tensor* bq = nullptr;         // biases: optional, qwen2 has the first three
  ggml_tensor* bk = nullptr;
  ggml_tensor* bv = nullptr;
  ggml_tensor* bo = nullptr;
  ggml_tensor* q_norm = nullptr;    // [key_dim], qwen3
  ggml_tensor* k_norm = nullptr;    // [key_dim], qwen3
  ggml_tensor* sinks = nullptr;     // [n_head] logits
  ggml_tensor* ffn_norm = nullptr;  // [n_embd]
  ggml_tensor* gate = nullptr;      // [n_embd, n_ff]
  ggml_tensor* up = nullptr;        // [n_embd, n_ff]
  ggml_tensor* down = nullptr;      // [n_ff, n_embd]
  ggml_tensor* gate_b = nullptr;
  ggml_tensor* up_b = nullptr;
  ggml_tensor* down_b = nullptr;
  ggml_tensor* rope_freqs = nullptr;  // [rope.n_dims / 2] factors (Llama 3), shared by all layers
};

struct Weights {
  ggml_tensor* token_embd = nullptr;   // [n_embd, n_vocab]
  ggml_tensor* output_norm = nullptr;  // [n_embd]
  ggml_tensor* output = nullptr;       // [n_embd, n_vocab]; token_embd itself where the file ties them
  std::vector<LayerWeights> layers;
};

// Reads and checks the metadata. Throws Error(kBadFile), and kUnsupported for what this build cannot do.
ModelSpec read_spec(const GgufFile& file, const Architecture& architecture);

// Finds every tensor, checks its shape, and refuses a file with tensors that nobody would use: they would change the
// model's answers.
Weights load_weights(const GgufFile& file, const ModelSpec& spec);

// One row of a weight matrix as float32 (an embedding).
void dequantize_row(const ggml_tensor* tensor, std::int64_t row, float* out);

}  // namespace winnow
