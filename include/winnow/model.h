// A language model loaded from a GGUF file: its weights, tokenizer and chat template.
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
#include <vector>

#include "winnow/api.h"
#include "winnow/metadata_value.h"
#include "winnow/token.h"

namespace WINNOW_API winnow {

// Settings of Model::load.
struct ModelOptions {
  bool use_mmap = true;  // false: the weights are read into memory
  // Interleaves rows of quantised matrices in a copy, when an engine first computes with them, where that makes the
  // processor's products faster and memory for it can be had. Never done without use_mmap. Several processes do not
  // share such copies, as they share the file in the page cache.
  bool repack = true;
  std::string chat_template;  // Jinja, in place of the file's own; "chatml": that of <|im_start|>. Empty: the file's
  // Metadata that replaces or adds to the file's, by key. Keys of the architecture ("llama.rope.freq_base", or
  // ".rope.freq_base" for any architecture), and those of the tokenizer's special tokens and of which are added
  // ("tokenizer.ggml.bos_token_id", "tokenizer.ggml.add_bos_token"). They change the fingerprint.
  std::vector<std::pair<std::string, MetadataValue>> metadata;
};

// The kind of a layer, by what it remembers of earlier tokens.
enum class LayerKind {
  kFullAttention,  // a token attends to all tokens before it; eviction methods cut these layers
  kSlidingWindow,  // a token attends to the last `sliding_window` tokens; older entries are freed, whatever the method
  kRecurrent,      // a state of a fixed size takes the place of keys and values
  kSharedAttention,  // a token attends to the keys and values of an earlier layer, which are stored once
};

// One layer's dimensions, under the names that the whole project uses.
struct LayerInfo {
  LayerKind kind;
  int n_head, n_kv_head;        // query heads and KV heads; 0 in a recurrent layer. A sharing layer has no KV heads
  int key_dim, value_dim;       // numbers of a head's key and value
  int n_ff;                     // width of the feed-forward network; of one expert in a layer with experts
  std::int32_t sliding_window;  // in tokens; 0: none
  int n_expert = 0;             // number of experts; 0: dense
  int n_expert_used = 0;        // number of experts that a token is routed to
  std::size_t state_bytes = 0;  // state of a sequence in a recurrent layer
  int shared_n_ff = 0;          // width of the shared expert, which every token takes besides; 0: none
  int kv_layer = -1;            // layer whose keys and values it attends to: itself, except in a sharing layer

  // Returns true if methods evict from the layer: it has full attention and entries of its own.
  bool is_evictable() const { return kind == LayerKind::kFullAttention; }
  // Returns the number of KV heads that methods evict from: all of the layer's, or none.
  int n_evictable_heads() const { return is_evictable() ? n_kv_head : 0; }
  [[deprecated("is_evictable")]] bool is_cut() const { return is_evictable(); }
};

// The pooling of the hidden states of a text's tokens to its embedding: their mean, the first token's, the last
// token's.
enum class Pooling { kMean, kCls, kLast };

// The facts about a model that are known once it is loaded.
struct ModelInfo {
  std::string architecture;  // "llama", "qwen2", ...
  std::string name;          // general.name, may be empty
  std::string file_type;     // most frequent weight type, e.g. "q4_1"
  std::uint64_t n_parameters;
  std::uint64_t bytes;  // bytes of the file's tensors
  int n_embd, n_vocab;
  std::int32_t n_ctx_train;  // the context in tokens that the file declares
  std::vector<LayerInfo> layers;
  std::optional<Pooling> pooling;  // the pooling that the file names
  // Hash of the architecture, the options' changes of metadata, and the tensors' names, types, shapes and samples, by
  // which profiles know a model.
  std::uint64_t fingerprint;
  // Hash of the keys of the architecture, the tokenizer and its chat template. Sessions know a model by both: files
  // with the same tensors may differ in their RoPE, say.
  std::uint64_t metadata_fingerprint;

  int n_layer() const { return static_cast<int>(layers.size()); }
  std::size_t state_bytes() const;  // returns the bytes of a sequence's states in all recurrent layers
  int n_cut_heads() const;          // returns the number of KV heads in all layers that methods cut
  // Returns the bytes of a token while a prompt passes through the layers: its hidden state, and in a model with
  // experts their output and the token's routing.
  std::size_t hidden_bytes_per_token() const;

  // Returns a dimension of the layers, e.g. &LayerInfo::n_head: one number where all layers have the same, else
  // [n_layer].
  std::vector<int> dimension(int LayerInfo::*field) const;
};

// A call of a tool by the model.
struct ChatToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

// A message of a chat.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::string reasoning;                 // an assistant's thinking before the content
  std::vector<ChatToolCall> tool_calls;  // an assistant's calls
  std::string tool_call_id, name;        // of a tool's answer: the id of the call, and the tool's name
};
struct ChatOptions;
struct ChatPrompt;

// A loaded model. Immutable after loading; safe to use from several threads and engines at once.
class Model {
 public:
  // Loads a GGUF file. `path` may be any part of a model in several files (name-00001-of-00003.gguf), which all have to
  // lie in one folder. Throws Error: kNotFound, kBadFile, kUnsupported (an architecture, with the list of those
  // supported; a chat template in the options that cannot be read), kInvalidArgument (metadata in the options that
  // cannot be changed, or has a value of another type or out of range).
  static std::shared_ptr<const Model> load(const std::string& path, const ModelOptions& options = {});
  ~Model();

  const ModelInfo& info() const;

  // Returns the tokens of a text. add_special: puts the begin token first if the model has one. parse_special: a text
  // such as <|im_start|> becomes its token. Throws Error(kInvalidArgument) for invalid UTF-8, naming the byte.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  // Returns the bytes of one token, not necessarily whole characters; "" for a special token unless `special`.
  std::string token_text(Token token, bool special = false) const;
  // Returns the bytes of all tokens but special ones.
  std::string detokenize(std::span<const Token> tokens) const;
  // Returns true for a token that ends an answer (end of text, end of turn and the like).
  bool is_end_of_generation(Token token) const;
  // Returns a special token of the model file, also one that tokenize() does not add; nothing where the file names
  // none.
  std::optional<Token> special_token(SpecialToken which) const;
  // Returns the file's metadata as pairs of key and text, in the file's order: texts as they are, numbers and truth
  // values as llama.cpp writes them ("0.000010", "true"). Lists, such as the vocabulary, are left out.
  std::vector<std::pair<std::string, std::string>> metadata() const;

  // Returns true if the file has a chat template, or one was given to load().
  bool has_chat_template() const;
  // Returns the messages as the chat template renders them; add_assistant adds the header of an answer to come. Time
  // and memory are bounded, since a template is foreign code. Throws Error(kUnsupported) without a template, for one
  // that cannot be read or takes too much, and for messages that it refuses; Error(kInvalidArgument) without messages.
  std::string apply_chat_template(std::span<const ChatMessage> messages, bool add_assistant) const;
  // Returns the same with tools and thinking, and with the format of the answer (chat.h). Throws
  // Error(kInvalidArgument) also for tools whose JSON cannot be used.
  ChatPrompt apply_chat_template(std::span<const ChatMessage> messages, const ChatOptions& options) const;

  // The internals, for winnow's own layers.
  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
