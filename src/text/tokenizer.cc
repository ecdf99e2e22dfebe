#include "text/tokenizer.h"

#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <unordered_set>
#include <variant>

#include "base/utf8.h"
#include "gguf/ggml_log.h"
#include "text/special_tokens.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Each token takes at least a byte of the text, except for a few that are added around it.
constexpr std::size_t kAdded = 8;

constexpr std::size_t kMemoBytes = std::size_t{4} << 20;  // some hundred beginnings of chats

constexpr std::size_t kMostBytes = std::numeric_limits<std::int32_t>::max();  // of a text: libllama's lengths are int32

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

struct GgufDeleter {
  void operator()(gguf_context* file) const { gguf_free(file); }
};
using Header = std::unique_ptr<gguf_context, GgufDeleter>;

Header read_header(const std::string& path) {
  Header file(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
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

// Returns whether the tokenizer is one of byte pairs. Throws Error(kBadFile) for the further kinds that libllama reads:
// winnow does not run their models, and libllama aborts on damaged ones.
bool is_byte_pair_vocabulary(const std::string& path, const gguf_context* file) {
  const std::int64_t key = gguf_find_key(file, "tokenizer.ggml.model");
  if (key < 0 || gguf_get_kv_type(file, key) != GGUF_TYPE_STRING) return false;  // libllama reports that itself
  const std::string_view model = gguf_get_val_str(file, key);
  if (model != "llama" && model != "gpt2" && model != "no_vocab" && model != "none") {
    fail_to_load(path, "the kind '" + std::string(model) + "' is not supported; winnow has llama and gpt2");
  }
  return model == "gpt2";
}

// Throws Error(kBadFile) for a file with which libllama aborts on two spaces in a row in a text. It is that of an
// embedding model that winnow does not run.
void check_kind_of_words(const std::string& path, const gguf_context* file) {
  const std::int64_t key = gguf_find_key(file, "tokenizer.ggml.pre");
  if (key < 0 || gguf_get_kv_type(file, key) != GGUF_TYPE_STRING) return;
  if (std::string_view(gguf_get_val_str(file, key)) != "whitespace") return;
  fail_to_load(path, "words split at white space only (tokenizer.ggml.pre 'whitespace') are not supported");
}

// Throws Error(kBadFile) for a vocabulary on which libllama would abort while it loads it.
void check_vocabulary(std::span<const std::string> paths) {
  const std::string& path = paths.front();
  const Header file = read_header(path);
  std::optional<std::size_t> most = embedding_bytes(file.get());
  for (std::size_t i = 1; !most && i < paths.size(); ++i) most = embedding_bytes(read_header(paths[i]).get());
  if (most) check_vocabulary_size(path, file.get(), *most);
  const bool has_pairs = is_byte_pair_vocabulary(path, file.get());
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
  if (!has_pairs || types < 0 || gguf_get_kv_type(file.get(), types) != GGUF_TYPE_ARRAY ||
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
std::vector<llama_model_kv_override> overrides_of(std::span<const MetadataChange> changes) {
  std::vector<llama_model_kv_override> overrides;
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

llama_model* load_vocabulary(std::span<const std::string> paths, std::span<const MetadataChange> changes) {
  const std::string& path = paths.front();
  silence_ggml();
  static std::once_flag once;
  std::call_once(once, llama_backend_init);
  take_ggml_errors();  // drops the messages of earlier work on this thread
  check_vocabulary(paths);

  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  const std::vector<llama_model_kv_override> overrides = overrides_of(changes);
  params.kv_overrides = overrides.data();
  std::vector<const char*> names;
  for (const std::string& each : paths) names.push_back(each.c_str());
  llama_model* model = nullptr;
  try {
    model = llama_model_load_from_splits(names.data(), names.size(), params);
  } catch (const std::exception& error) {
    fail_to_load(path, error.what());
  }
  const std::string lines = take_ggml_errors();
  if (model == nullptr) fail_to_load(path, reason_of(lines));
  return model;
}

// Returns the name of the model file's pre-tokenizer, or "" if it has none.
std::string kind_of_words(const llama_model& model) {
  std::array<char, 64> name = {};
  const std::int32_t n = llama_model_meta_val_str(&model, "tokenizer.ggml.pre", name.data(), name.size());
  return n > 0 && static_cast<std::size_t>(n) < name.size() ? std::string(name.data()) : "";
}

// Calls write(buffer, capacity), which returns the bytes written or minus the bytes needed, until the text fits.
template <typename Write>
std::string written_text(std::size_t capacity, Write write) {
  std::string text(capacity, '\0');
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::int32_t n = write(text.data(), static_cast<std::int32_t>(text.size()));
    if (n >= 0) {
      text.resize(static_cast<std::size_t>(n));
      return text;
    }
    text.resize(static_cast<std::size_t>(-static_cast<std::int64_t>(n)));
  }
  throw Error(ErrorCode::kInternal, "libllama needs more bytes for a text than it asked for: please report this");
}

}  // namespace

void Tokenizer::ModelDeleter::operator()(llama_model* model) const { llama_model_free(model); }

Tokenizer::Tokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes,
                     std::size_t window_bytes)
    : model_(load_vocabulary(paths, changes)),
      window_bytes_(window_bytes),
      breaks_(kind_of_words(*model_), window_bytes_),
      memo_(kMemoBytes) {
  vocab_ = llama_model_get_vocab(model_.get());
  n_vocab_ = llama_vocab_n_tokens(vocab_);
  has_tokens_ = n_vocab_ > 0 && llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE;
  is_of_byte_pairs_ = llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_BPE;
  // A file may ask for tokens that it does not define; libllama would abort on adding them.
  adds_begin_token_ = llama_vocab_get_add_bos(vocab_) && llama_vocab_bos(vocab_) != LLAMA_TOKEN_NULL;
  adds_end_token_ = llama_vocab_get_add_eos(vocab_) && llama_vocab_eos(vocab_) != LLAMA_TOKEN_NULL;
}

void Tokenizer::require_tokens() const {
  if (has_tokens_) return;
  throw Error(
      ErrorCode::kUnsupported,
      "the model file has no tokenizer: give token ids instead of text, or use a file with tokenizer.ggml.tokens");
}

void Tokenizer::require_token(Token token) const {
  require_tokens();
  if (token >= 0 && token < n_vocab_) return;
  throw Error(ErrorCode::kInvalidArgument, "there is no token " + std::to_string(token) +
                                               ": the model has tokens 0 to " + std::to_string(n_vocab_ - 1));
}

std::vector<Token> Tokenizer::tokens_of(std::string_view text, bool add_special, bool parse_special) const {
  const bool wants_undefined =
      (llama_vocab_get_add_bos(vocab_) && !adds_begin_token_) || (llama_vocab_get_add_eos(vocab_) && !adds_end_token_);
  std::vector<Token> tokens(text.size() + kAdded);
  std::int32_t n = 0;
  try {
    for (int attempt = 0; attempt < 2; ++attempt) {
      n = llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                         static_cast<std::int32_t>(tokens.size()), add_special && !wants_undefined, parse_special);
      if (n >= 0 || n == std::numeric_limits<std::int32_t>::min()) break;
      tokens.resize(static_cast<std::size_t>(-static_cast<std::int64_t>(n)));
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("the model's tokenizer cannot split this text (") + error.what() + "): change the text");
  }
  if (n < 0) throw Error(ErrorCode::kInvalidArgument, "the text gives more tokens than 31 bits can count: split it");
  tokens.resize(static_cast<std::size_t>(n));
  // If only one of the two is defined, that one is still added.
  if (add_special && wants_undefined && adds_end_token_) tokens.push_back(llama_vocab_eos(vocab_));
  if (add_special && wants_undefined && adds_begin_token_) {
    tokens.push_back(llama_vocab_bos(vocab_));
    std::rotate(tokens.begin(), tokens.end() - 1, tokens.end());
  }
  return tokens;
}

const Tokenizer::Specials& Tokenizer::specials() const {
  constexpr std::size_t kMostSpecials = 512;
  std::call_once(specials_once_, [this] {
    std::vector<std::string> all, always, if_parsed;
    for (Token token = 0; token < n_vocab_; ++token) {
      const int attributes = llama_vocab_get_attr(vocab_, token);
      const bool is_parsed_only = (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
      if (!is_parsed_only && (attributes & LLAMA_TOKEN_ATTR_USER_DEFINED) == 0) continue;
      all.emplace_back(llama_vocab_get_text(vocab_, token));
      if (WordBreaks::may_be_in(all.back())) specials_.are_apart_from_words = false;
      std::vector<std::string>& searched = is_parsed_only ? if_parsed : always;
      if (searched.size() < kMostSpecials) searched.push_back(all.back());
    }
    specials_.always = certain_specials(all, always);
    specials_.if_parsed = certain_specials(all, if_parsed);
  });
  return specials_;
}

// Only texts that are long enough for it to matter are cut, and only if the tokenizer looks no further than from one
// special token to the next.
std::vector<std::size_t> Tokenizer::cuts(std::string_view text, bool parse_special) const {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 12;
  const enum llama_vocab_type type = llama_vocab_type(vocab_);
  const bool is_local = type == LLAMA_VOCAB_TYPE_SPM || type == LLAMA_VOCAB_TYPE_BPE;
  if (text.size() <= 2 * kPieceBytes || !is_local) return {0};
  std::vector<std::string> certain = specials().always;
  if (parse_special) certain.insert(certain.end(), specials().if_parsed.begin(), specials().if_parsed.end());
  return cuts_at_specials(text, certain, kPieceBytes);
}

std::vector<Token> Tokenizer::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  require_tokens();
  if (const auto offset = find_invalid_utf8(text)) {
    throw Error(ErrorCode::kInvalidArgument, "the text is not UTF-8 at byte " + std::to_string(*offset) +
                                                 ": convert it, for example with iconv -t UTF-8");
  }
  if (text.size() > kMostBytes - kAdded) {
    throw Error(ErrorCode::kInvalidArgument, "the text has " + std::to_string(text.size()) +
                                                 " bytes, but a tokenizer takes at most " +
                                                 std::to_string(kMostBytes - kAdded) + ": split it");
  }
  std::vector<Token> tokens;
  const std::vector<std::size_t> begins = cuts(text, parse_special);
  if (begins.size() == 1 && !is_too_deep(text)) {
    tokens = tokens_of(text, add_special, parse_special);
  } else {
    if (add_special && adds_begin_token_) tokens.push_back(llama_vocab_bos(vocab_));
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : text.size();
      const std::string_view piece = text.substr(begins[i], end - begins[i]);
      const bool is_last = end == text.size();  // it differs at the next turn of a chat
      std::optional<std::vector<Token>> more = is_last ? std::nullopt : memo_.find(piece, parse_special);
      if (!more) {
        more = piece_tokens(piece, parse_special);
        if (!is_last) memo_.add(piece, parse_special, *more);
      }
      tokens.insert(tokens.end(), more->begin(), more->end());
    }
    if (add_special && adds_end_token_) tokens.push_back(llama_vocab_eos(vocab_));
  }
  tokens.shrink_to_fit();
  return tokens;
}

std::string Tokenizer::token_text(Token token, bool special) const {
  require_token(token);
  // The buffer is longer than nearly every token: this function is called per generated token and allocates only its
  // result.
  std::array<char, 64> buffer;
  const std::int32_t n = llama_token_to_piece(vocab_, token, buffer.data(), buffer.size(), 0, special);
  if (n >= 0) return std::string(buffer.data(), static_cast<std::size_t>(n));
  return written_text(static_cast<std::size_t>(-n), [&](char* text, std::int32_t capacity) {
    return llama_token_to_piece(vocab_, token, text, capacity, 0, special);
  });
}

const TokenPieces& Tokenizer::pieces() const {
  std::call_once(pieces_once_, [this] { pieces_ = std::make_unique<TokenPieces>(*this); });
  return *pieces_;
}

std::string Tokenizer::detokenize(std::span<const Token> tokens) const {
  require_tokens();
  for (const Token token : tokens) require_token(token);
  if (tokens.size() > kMostBytes / 8) {
    throw Error(ErrorCode::kInvalidArgument, "too many tokens for one text: detokenize them in parts");
  }
  return written_text(tokens.size() * 8, [&](char* text, std::int32_t capacity) {
    return llama_detokenize(vocab_, tokens.data(), static_cast<std::int32_t>(tokens.size()), text, capacity, false,
                            false);
  });
}

std::optional<Token> Tokenizer::special_token(SpecialToken which) const {
  if (!has_tokens_) return std::nullopt;
  const auto token = [&] {
    switch (which) {
      case SpecialToken::kBegin:
        return llama_vocab_bos(vocab_);
      case SpecialToken::kEnd:
        return llama_vocab_eos(vocab_);
      case SpecialToken::kNewline:
        return llama_vocab_nl(vocab_);
      case SpecialToken::kInfillPrefix:
        return llama_vocab_fim_pre(vocab_);
      case SpecialToken::kInfillSuffix:
        return llama_vocab_fim_suf(vocab_);
      case SpecialToken::kInfillMiddle:
        break;
    }
    return llama_vocab_fim_mid(vocab_);
  }();
  // A file may name a token that is not in its vocabulary.
  return token >= 0 && token < n_vocab_ ? std::optional(token) : std::nullopt;
}

bool Tokenizer::is_end_of_generation(Token token) const { return has_tokens_ && llama_vocab_is_eog(vocab_, token); }

}  // namespace winnow
