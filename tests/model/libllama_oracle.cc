// The forward pass of libllama, which the model's own is compared with.
#include <ggml.h>
#include <llama.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "model/ggml_log.h"
#include "model/tiny_model.h"

namespace winnow::test {
namespace {

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};

}  // namespace

std::vector<std::vector<float>> libllama_logits(const std::string& path, std::span<const Token> tokens) {
  silence_ggml();
  static std::once_flag once;
  std::call_once(once, llama_backend_init);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_params.use_extra_bufts = false;  // ggml's AMX products raise SIGILL where the kernel grants no tiles
  const std::unique_ptr<llama_model, ModelDeleter> model(llama_model_load_from_file(path.c_str(), model_params));
  if (!model) throw std::runtime_error("libllama cannot load " + path + ": " + take_ggml_errors());

  const auto n = static_cast<std::uint32_t>(tokens.size());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n + 8;
  params.n_batch = n;
  params.n_ubatch = std::min(n, 512U);
  params.n_threads = 2;
  params.n_threads_batch = 2;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
  const std::unique_ptr<llama_context, ContextDeleter> context(llama_init_from_model(model.get(), params));
  if (!context) throw std::runtime_error("libllama cannot make a context: " + take_ggml_errors());

  llama_batch batch = llama_batch_init(static_cast<std::int32_t>(n), 0, 1);
  for (std::uint32_t i = 0; i < n; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = static_cast<std::int32_t>(n);
  const int status = llama_decode(context.get(), batch);
  llama_batch_free(batch);
  if (status != 0) throw std::runtime_error("llama_decode failed: " + take_ggml_errors());

  const auto n_vocab = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
  std::vector<std::vector<float>> logits;
  for (std::uint32_t i = 0; i < n; ++i) {
    const float* row = llama_get_logits_ith(context.get(), static_cast<std::int32_t>(i));
    logits.emplace_back(row, row + n_vocab);
  }
  return logits;
}

}  // namespace winnow::test
