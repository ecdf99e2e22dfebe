// A language model loaded from a GGUF file: weights, tokenizer, chat template.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

using Token = std::int32_t;

struct ModelOptions {
  bool use_mmap = true;  // false: read the weights into memory
};

// Dimensions under the names that the whole project uses.
struct ModelInfo {
  std::string architecture;  // "llama", "qwen2", ...
  std::string name;          // general.name, may be empty
  std::string file_type;     // most frequent weight type, e.g. "q4_1"
  std::uint64_t n_parameters;
  std::uint64_t bytes;  // of the file's tensors
  int n_layer, n_head, n_kv_head, head_dim, n_embd, n_ff, n_vocab;
  std::int32_t n_ctx_train;     // the context the file declares
  std::int32_t sliding_window;  // 0: none
  std::uint64_t fingerprint;    // of the metadata and tensor table: sessions and profiles remember it
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Immutable after loading; safe to use from several threads and engines at once.
class Model {
 public:
  // Throws Error: kNotFound, kBadFile, kUnsupported (architecture, with the list of those supported).
  static std::shared_ptr<const Model> load(const std::string& path, const ModelOptions& options = {});
  ~Model();

  const ModelInfo& info() const;

  // Throws Error(kInvalidArgument) for invalid UTF-8, naming the byte. add_special: the begin token where the model has
  // one. parse_special: text such as <|im_start|> becomes its token.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  // The bytes of one token (not necessarily whole characters); special tokens give "" unless `special`.
  std::string token_text(Token token, bool special = false) const;
  std::string detokenize(std::span<const Token> tokens) const;
  bool is_end_of_generation(Token token) const;

  // Whether the file carries a chat template that is known; apply_chat_template throws Error(kUnsupported) otherwise.
  bool has_chat_template() const;
  std::string apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant) const;

  // The internals, for winnow's own layers.
  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
