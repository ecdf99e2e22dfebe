#include "text/vocabulary_file.h"

#include <ggml-cpp.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "gguf/ggml_log.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::string_view kKindOfWords = "tokenizer.ggml.pre";
constexpr std::string_view kKindOfTokenizer = "tokenizer.ggml.model";

// These are kinds of tokenizers. Gemma 4's has byte pairs of characters, and bytes for those that are no token.
constexpr std::string_view kBytePairs = "gpt2", kGemma4 = "gemma4";
constexpr std::array<std::string_view, 5> kKinds = {"llama", kBytePairs, kGemma4, "no_vocab", "none"};

[[noreturn]] void fail_to_load(const std::string& path, const std::string& reason) {
  if (reason.find("bad_alloc") != std::string::npos) {
    throw Error(ErrorCode::kOutOfMemory, "not enough memory to read the tokenizer of " + path +
                                             ": free some, or raise the limit of address space (ulimit -v)");
  }
  throw Error(ErrorCode::kBadFile,
              "cannot read the tokenizer of " + path + ": " + reason + "; download or convert the model file again");
}

// Returns libllama's lines as one clause, without the names of its functions and the lines that only report a failure.
std::string reason_of(std::string_view lines) {
  std::string reason;
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (const auto colon = line.find(": "); colon != std::string_view::npos && line.find(' ') > colon) {
      line.remove_prefix(colon + 2);
    }
    constexpr std::string_view kLead = "error loading model: ";
    if (line.starts_with(kLead)) line.remove_prefix(kLead.size());
    if (line.empty() || line == "failed to load model") continue;
    if (!reason.empty()) reason += ", ";
    reason += line;
  }
  return reason.empty() ? "libllama gives no reason" : reason;
}

gguf_context_ptr read_header(const std::string& path) {
  gguf_context_ptr file(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  if (file == nullptr) fail_to_load(path, reason_of(take_ggml_errors()));
  return file;
}

// Returns the bytes of the embeddings, or nullopt if the file has none.
std::optional<std::size_t> embedding_bytes(const gguf_context* file) {
  const std::int64_t embeddings = gguf_find_tensor(file, "token_embd.weight");
  if (embeddings < 0) return std::nullopt;
  return gguf_get_tensor_size(file, embeddings);
}

// Throws Error(kBadFile) if a file states more tokens than its `most` bytes of embeddings can have rows for. Without a
// list of tokens, libllama trusts the stated size and allocates memory for it, however much that is.
void check_vocabulary_size(const std::string& path, const gguf_context* file, std::size_t most) {
  for (std::int64_t key = 0; key < gguf_get_n_kv(file); ++key) {
    const std::string_view name = gguf_get_key(file, key);
    if (!name.ends_with(".vocab_size") || gguf_get_kv_type(file, key) != GGUF_TYPE_UINT32) continue;
    const std::uint32_t size = gguf_get_val_u32(file, key);
    if (size <= most) continue;
    fail_to_load(path, std::string(name) + " is " + std::to_string(size) + ", more tokens than there are embeddings");
  }
}

// Returns the kind of the file's tokenizer, or "" if it names none, which libllama reports itself. Throws
// Error(kBadFile) for the further kinds that libllama reads: winnow does not run their models, and libllama aborts on
// damaged ones.
std::string_view kind_of_tokenizer(const std::string& path, const gguf_context* file) {
  const std::int64_t key = gguf_find_key(file, kKindOfTokenizer.data());
  if (key < 0 || gguf_get_kv_type(file, key) != GGUF_TYPE_STRING) return "";
  const std::string_view kind = gguf_get_val_str(file, key);
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    fail_to_load(path, "the kind '" + std::string(kind) + "' is not supported; winnow has llama, gpt2 and gemma4");
  }
  return kind;
}

// Throws Error(kBadFile) for a file with which libllama aborts on two spaces in a row in a text. It is that of an
// embedding model that winnow does not run.
void check_kind_of_words(const std::string& path, const gguf_context* file) {
  const std::int64_t key = gguf_find_key(file, kKindOfWords.data());
  if (key < 0 || gguf_get_kv_type(file, key) != GGUF_TYPE_STRING) return;
  if (std::string_view(gguf_get_val_str(file, key)) != "whitespace") return;
  fail_to_load(path, "words split at white space only (tokenizer.ggml.pre 'whitespace') are not supported");
}

// Throws Error(kBadFile) for a vocabulary on which libllama would abort while it loads it.
void check_vocabulary(std::span<const std::string> paths) {
  const std::string& path = paths.front();
  const gguf_context_ptr file = read_header(path);
  std::optional<std::size_t> most = embedding_bytes(file.get());
  for (std::size_t i = 1; !most && i < paths.size(); ++i) most = embedding_bytes(read_header(paths[i]).get());
  if (most) check_vocabulary_size(path, file.get(), *most);
  const bool may_have_bytes = kind_of_tokenizer(path, file.get()) != kBytePairs;
  check_kind_of_words(path, file.get());
  const std::int64_t key = gguf_find_key(file.get(), "tokenizer.ggml.tokens");
  if (key < 0 || gguf_get_kv_type(file.get(), key) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(file.get(), key) != GGUF_TYPE_STRING) {
    return;  // libllama reports that itself
  }
  const std::size_t n_tokens = gguf_get_arr_n(file.get(), key);
  std::unordered_set<std::string> seen;
  seen.reserve(n_tokens);
  for (std::size_t i = 0; i < n_tokens; ++i) {
    std::string text = gguf_get_arr_str(file.get(), key, i);
    if (text.empty()) text = "[EMPTY_" + std::to_string(i) + "]";  // the name that libllama gives it
    if (!seen.insert(text).second) {
      fail_to_load(path, "token " + std::to_string(i) + " repeats the text '" + text + "'");
    }
  }
  const std::int64_t types = gguf_find_key(file.get(), "tokenizer.ggml.token_type");
  if (may_have_bytes || types < 0 || gguf_get_kv_type(file.get(), types) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(file.get(), types) != GGUF_TYPE_INT32) {
    return;
  }
  const auto* all = static_cast<const std::int32_t*>(gguf_get_arr_data(file.get(), types));
  for (std::size_t i = 0; i < std::min(n_tokens, gguf_get_arr_n(file.get(), types)); ++i) {
    if (all[i] != LLAMA_TOKEN_TYPE_BYTE) continue;
    fail_to_load(path, "token " + std::to_string(i) + " is a byte, which byte-pair tokenizers do not have");
  }
}

// Returns the changes of the tokenizer's keys in libllama's form; the last one is empty.
std::vector<llama_model_kv_override> overrides_of(std::span<const MetadataChange> changes, const std::string& kind) {
  std::vector<llama_model_kv_override> overrides;
  if (!kind.empty()) {
    llama_model_kv_override change{.tag = LLAMA_KV_OVERRIDE_TYPE_STR};
    kKindOfWords.copy(change.key, sizeof(change.key) - 1);
    kind.copy(change.val_str, sizeof(change.val_str) - 1);
    overrides.push_back(change);
  }
  for (const auto& [key, new_value] : changes) {
    llama_model_kv_override change{};
    if (!key.starts_with("tokenizer.") || key.size() >= sizeof(change.key)) continue;
    key.copy(change.key, key.size());
    if (const bool* truth = std::get_if<bool>(&new_value)) {
      change.tag = LLAMA_KV_OVERRIDE_TYPE_BOOL;
      change.val_bool = *truth;
    } else if (const std::int64_t* number = std::get_if<std::int64_t>(&new_value)) {
      change.tag = LLAMA_KV_OVERRIDE_TYPE_INT;
      change.val_i64 = *number;
    }
    overrides.push_back(change);
  }
  overrides.emplace_back();
  return overrides;
}

}  // namespace

void VocabularyDeleter::operator()(llama_model* model) const { llama_model_free(model); }

Vocabulary load_vocabulary(std::span<const std::string> paths, std::span<const MetadataChange> changes,
                           const std::string& kind_of_words) {
  const std::string& path = paths.front();
  silence_ggml();
  static std::once_flag once;
  std::call_once(once, llama_backend_init);
  take_ggml_errors();  // drops the messages of earlier work on this thread
  check_vocabulary(paths);

  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  const std::vector<llama_model_kv_override> overrides = overrides_of(changes, kind_of_words);
  params.kv_overrides = overrides.data();
  std::vector<const char*> names;
  for (const std::string& each : paths) names.push_back(each.c_str());
  Vocabulary model;
  try {
    model.reset(llama_model_load_from_splits(names.data(), names.size(), params));
  } catch (const std::exception& error) {
    fail_to_load(path, error.what());
  }
  const std::string lines = take_ggml_errors();
  if (model == nullptr) fail_to_load(path, reason_of(lines));
  return model;
}

std::string kind_of_words(const llama_model& model) {
  const auto value_of = [&](std::string_view key) {
    std::array<char, 64> value = {};
    const std::int32_t n = llama_model_meta_val_str(&model, key.data(), value.data(), value.size());
    return n > 0 && static_cast<std::size_t>(n) < value.size() ? std::string(value.data()) : "default";
  };
  if (value_of(kKindOfTokenizer) == kGemma4) return std::string(kGemma4);
  return value_of(kKindOfWords);
}

}  // namespace winnow
