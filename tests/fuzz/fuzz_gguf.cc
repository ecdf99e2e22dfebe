// Model files. An input's first byte says what the rest is: a file as it is (odd), or edits of a small complete model
// (even), so that what is behind the reader of the format is fuzzed too. What loads is asked for tokens, and for
// logits.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/gguf_parts.h"
#include "fuzz/memory_file.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace {

using namespace winnow;        // NOLINT(google-build-using-namespace)
using namespace winnow::test;  // NOLINT(google-build-using-namespace)

std::vector<GgufParts> complete_models() {
  constexpr int kQ80 = 8;  // GGML_TYPE_Q8_0
  const TinyModelOptions small{
      .n_layer = 1, .n_head = 2, .n_kv_head = 1, .head_dim = 16, .n_embd = 32, .n_ff = 32, .n_vocab = 262};
  std::vector<TinyModelOptions> all(6, small);
  all[1].architecture = "qwen2";
  all[2].architecture = "qwen3";
  all[3].architecture = "gemma";
  all[4].weight_type = kQ80;
  all[4].has_rope_freqs = true;
  all[5].has_tokenizer = false;
  all[5].rope_scaling = "yarn";
  std::vector<GgufParts> parts;
  for (const TinyModelOptions& options : all) parts.push_back(take_apart(read_bytes(TinyModel(options).path())));
  return parts;
}

void use(const std::shared_ptr<const Model>& model) {
  std::vector<Token> tokens = {0};
  try {
    tokens = model->tokenize("Hello, \xc3\xa9 world", true, true);
    model->detokenize(tokens);
    const ChatMessage message{"user", "hello"};
    if (model->has_chat_template()) model->apply_chat_template(std::span(&message, 1), true);
  } catch (const Error&) {
  }
  for (Token& token : tokens) token = std::min(token, model->info().n_vocab - 1);
  tokens.resize(std::min<std::size_t>(tokens.size(), 4));
  if (tokens.empty()) tokens = {0};
  const auto engine = Engine::create(model, {.n_threads = 1, .kv_bytes_limit = 1 << 22});
  Session session = engine->open({});
  session.prefill(tokens);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<GgufParts> complete = complete_models();
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    GgufParts parts = complete[data[0] / 2 % complete.size()];
    edit(parts, data + 1, size - 1);
    file = put_together(parts);
  }
  const MemoryFile memory(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  try {
    const auto model = Model::load(memory.path());
    if (data[size - 1] % 4 == 0) use(model);  // takes longer than all the rest
  } catch (const Error&) {
  }
  return 0;
}
