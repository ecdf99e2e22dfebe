// libllama's forward pass, with which the model's own is compared.
#include <ggml-cpp.h>
#include <llama-cpp.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "gguf/ggml_log.h"
#include "gguf/gguf_file.h"
#include "model/tiny_model.h"
#include "model/weights.h"

namespace winnow::test {
namespace {

llama_model_ptr load(const std::string& path, OracleWeights weights, const llama_model_params& params) {
  if (weights == OracleWeights::kAsInFile) return llama_model_ptr(llama_model_load_from_file(path.c_str(), params));
  const TemporaryDirectory directory;  // the mapping outlives the name
  write_f32_copy(path, directory.file("f32.gguf"));
  return llama_model_ptr(llama_model_load_from_file(directory.file("f32.gguf").c_str(), params));
}

llama_model_ptr load_oracle(const std::string& path, OracleWeights weights) {
  silence_ggml();
  static std::once_flag once;
  std::call_once(once, llama_backend_init);
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = false;  // ggml's AMX products raise SIGILL if the kernel grants no tiles
  llama_model_ptr model = load(path, weights, params);
  if (!model) throw std::runtime_error("libllama cannot load " + path + ": " + take_ggml_errors());
  return model;
}

llama_context_params context_params(std::size_t n_tokens) {
  const auto n = static_cast<std::uint32_t>(n_tokens);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n + 8;
  params.n_batch = n;
  params.n_ubatch = std::min(n, 512U);
  // In a tiny model the waits of threads for each other cost more than they save, above all on a busy machine.
  params.n_threads = n > 512 ? 2 : 1;
  params.n_threads_batch = params.n_threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
  return params;
}

// Returns a context that has processed all tokens in one batch and has logits of those from `first` on.
llama_context_ptr feed(llama_model& model, const llama_context_params& params, std::span<const Token> tokens,
                       std::size_t first = 0) {
  llama_context_ptr context(llama_init_from_model(&model, params));
  if (!context) throw std::runtime_error("libllama cannot make a context: " + take_ggml_errors());
  const auto n = static_cast<std::uint32_t>(tokens.size());
  llama_batch batch = llama_batch_init(static_cast<std::int32_t>(n), 0, 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i >= first ? 1 : 0;
  }
  batch.n_tokens = static_cast<std::int32_t>(n);
  const int status = llama_decode(context.get(), batch);
  llama_batch_free(batch);
  if (status != 0) throw std::runtime_error("llama_decode failed: " + take_ggml_errors());
  return context;
}

enum llama_pooling_type oracle_pooling(Pooling pooling) {
  if (pooling == Pooling::kCls) return LLAMA_POOLING_TYPE_CLS;
  return pooling == Pooling::kLast ? LLAMA_POOLING_TYPE_LAST : LLAMA_POOLING_TYPE_MEAN;
}

}  // namespace

void write_f32_copy(const std::string& path, const std::string& copy_path) {
  const GgufFile file(path, true);
  const gguf_context_ptr metadata(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  const gguf_context_ptr copy(gguf_init_empty());
  gguf_set_kv(copy.get(), metadata.get());
  std::size_t bytes = 1 << 20;
  for (std::int64_t i = 0; i < file.n_tensors(); ++i) {
    bytes += static_cast<std::size_t>(ggml_nelements(file.tensor(i))) * sizeof(float) + 1024;
  }
  const ggml_context_ptr context(ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = false}));
  for (std::int64_t i = 0; i < file.n_tensors(); ++i) {
    const ggml_tensor* source = file.tensor(i);
    ggml_tensor* tensor = ggml_new_tensor(context.get(), GGML_TYPE_F32, ggml_n_dims(source), source->ne);
    ggml_set_name(tensor, ggml_get_name(source));
    for (std::int64_t r = 0; r < ggml_nrows(source); ++r) {
      dequantize_row(source, r, static_cast<float*>(tensor->data) + r * source->ne[0]);
    }
    gguf_add_tensor(copy.get(), tensor);
  }
  if (!gguf_write_to_file(copy.get(), copy_path.c_str(), false)) throw std::runtime_error("cannot write " + copy_path);
}

struct LibllamaOracle::Impl {
  llama_model_ptr model;
};

LibllamaOracle::LibllamaOracle(const std::string& path, OracleWeights weights)
    : impl_(std::make_unique<Impl>(Impl{load_oracle(path, weights)})) {}
LibllamaOracle::~LibllamaOracle() = default;

std::vector<std::vector<float>> LibllamaOracle::logits(std::span<const Token> tokens, std::size_t first) const {
  const llama_context_ptr context = feed(*impl_->model, context_params(tokens.size()), tokens, first);
  const auto n_vocab = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(impl_->model.get())));
  std::vector<std::vector<float>> logits;
  for (std::size_t i = first; i < tokens.size(); ++i) {
    const float* row = llama_get_logits_ith(context.get(), static_cast<std::int32_t>(i));
    logits.emplace_back(row, row + n_vocab);
  }
  return logits;
}

void LibllamaOracle::save(const std::string& path) const { llama_model_save_to_file(impl_->model.get(), path.c_str()); }

std::vector<float> LibllamaOracle::embedding(std::span<const Token> tokens, Pooling pooling) const {
  llama_context_params params = context_params(tokens.size());
  params.embeddings = true;
  params.pooling_type = oracle_pooling(pooling);
  const llama_context_ptr context = feed(*impl_->model, params, tokens);
  const float* row = llama_get_embeddings_seq(context.get(), 0);
  if (row == nullptr) throw std::runtime_error("libllama gives no embedding");
  return {row, row + llama_model_n_embd(impl_->model.get())};
}

std::vector<std::vector<float>> libllama_logits(const std::string& path, std::span<const Token> tokens,
                                                OracleWeights weights) {
  return LibllamaOracle(path, weights).logits(tokens);
}

}  // namespace winnow::test
