// A language model loaded from a GGUF file: weights, tokenizer, chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

using Token = std::int32_t;

// A value of a model file's metadata.
using MetadataValue = std::variant<bool, std::int64_t, double, std::string>;

struct ModelOptions {
  bool use_mmap = true;  // false: read the weights into memory
  // Quantised matrices are copied with their rows interleaved when an engine first computes with them, where the
  // processor's products are faster so and memory for it can be had; never without use_mmap. Several processes then no
  // longer share them in the page cache.
  bool repack = true;
  std::string chat_template;  // Jinja, instead of the file's own; "chatml": that of <|im_start|>. Empty: the file's
  // Instead of what the file says, or beside it, by key: the architecture's ("llama.rope.freq_base"; ".rope.freq_base"
  // whatever the architecture), and of the tokenizer's which special tokens there are and are added
  // ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token"). The fingerprint is then another.
  std::vector<std::pair<std::string, MetadataValue>> metadata;
};

enum class LayerKind {
  kFullAttention,    // every row sees all rows before it: what eviction methods cut
  kSlidingWindow,    // every row sees the last `window` tokens: what is out of reach is freed, whatever the method
  kRecurrent,        // a state of a fixed size instead of keys and values
  kSharedAttention,  // attention to the keys and values of an earlier layer, which are stored once
};

// One layer's dimensions under the names that the whole project uses.
struct LayerInfo {
  LayerKind kind;
  int n_head, n_kv_head;        // 0 in a recurrent layer; of KV heads also in one that shares another's
  int key_dim, value_dim;       // of a head
  int n_ff;                     // width of the feed-forward; of one expert where there are experts
  std::int32_t window;          // 0: none
  int n_expert = 0;             // 0: dense
  int n_expert_used = 0;        // of a token
  std::size_t state_bytes = 0;  // of a sequence, in a recurrent layer
  int shared_n_ff = 0;          // of an expert that every token takes besides
  int kv_layer = -1;            // whose keys and values it attends to; itself but in a layer that shares

  // Whether methods evict from it: full attention, and entries of its own.
  bool is_evictable() const { return kind == LayerKind::kFullAttention; }
  [[deprecated("is_evictable")]] bool is_cut() const { return is_evictable(); }
};

// How the hidden states of a text's tokens become its embedding: their mean, the first token's, the last token's.
enum class Pooling { kMean, kCls, kLast };

struct ModelInfo {
  std::string architecture;  // "llama", "qwen2", ...
  std::string name;          // general.name, may be empty
  std::string file_type;     // most frequent weight type, e.g. "q4_1"
  std::uint64_t n_parameters;
  std::uint64_t bytes;  // of the file's tensors
  int n_embd, n_vocab;
  std::int32_t n_ctx_train;  // the context the file declares
  std::vector<LayerInfo> layers;
  std::optional<Pooling> pooling;  // that the file names
  std::uint64_t fingerprint;       // of the metadata and tensor table: sessions and profiles remember it

  int n_layer() const { return static_cast<int>(layers.size()); }
  std::size_t state_bytes() const;  // of a sequence, in all recurrent layers
  int n_cut_heads() const;          // KV heads of all layers that methods cut
  // Of a token while a prompt passes through the layers: its hidden state; with experts, what those that it takes give
  // besides, and which they are.
  std::size_t hidden_bytes_per_token() const;

  // A dimension of the layers, e.g. &LayerInfo::n_head: one number where all layers have the same, else [n_layer].
  std::vector<int> dimension(int LayerInfo::*field) const;
};

// Tokens with a meaning of their own.
enum class SpecialToken {
  kBegin,    // of a text
  kEnd,      // of a text
  kNewline,  // a line's end, which is not special in most vocabularies
  // The next three are those of models that were trained to fill in what stands between a beginning and an end.
  kInfillPrefix,  // before the beginning
  kInfillSuffix,  // before the end
  kInfillMiddle,  // before what is filled in
};

struct ChatToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::string reasoning;                 // of an assistant
  std::vector<ChatToolCall> tool_calls;  // of an assistant
  std::string tool_call_id, name;        // of a tool's answer: the call, the tool
};
struct ChatOptions;
struct ChatPrompt;

// Immutable after loading; safe to use from several threads and engines at once.
class Model {
 public:
  // path: of a GGUF file, or of any part of a model in several (name-00001-of-00003.gguf), which all have to lie in one
  // folder. Throws Error: kNotFound, kBadFile, kUnsupported (architecture, with the list of those supported; a chat
  // template in the options that cannot be read), kInvalidArgument (metadata in the options that cannot be changed).
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
  // Returns the model file's own, whether or not tokenize() adds it; nothing where the file names none.
  std::optional<Token> special_token(SpecialToken which) const;
  // Returns what the file says of the model, by key in its order: texts as they are, numbers and truth values as
  // llama.cpp writes them ("0.000010", "true"). Lists, of which a vocabulary is one, are left out.
  std::vector<std::pair<std::string, std::string>> metadata() const;

  // Whether the file carries a chat template, or one was given to load().
  bool has_chat_template() const;
  // The messages as the template renders them; add_assistant: with the header of an answer to come. Time and memory are
  // bounded, since a template may be anybody's. Throws Error(kUnsupported) without a template, for one that cannot be
  // read or asks for too much, and for messages that it refuses; Error(kInvalidArgument) without messages.
  std::string apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant) const;
  // The same with tools and thinking, and how to read the answer (chat.h). Throws Error(kInvalidArgument) also for
  // tools whose JSON cannot be used.
  ChatPrompt apply_chat_template(std::span<const ChatMessage> messages, const ChatOptions& options) const;

  // The internals, for winnow's own layers.
  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
