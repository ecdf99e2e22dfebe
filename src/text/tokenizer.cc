#include "text/tokenizer.h"

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

#include "base/utf8.h"
#include "text/word_patterns.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Each token takes at least a byte of the text, except for a few that are added around it.
constexpr std::size_t kAdded = 8;

constexpr std::size_t kMemoBytes = std::size_t{4} << 20;  // some hundred beginnings of chats

constexpr std::size_t kMostBytes = std::numeric_limits<std::int32_t>::max();  // of a text: libllama's lengths are int32

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

Tokenizer::Tokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes,
                     std::size_t most_bytes_of_words)
    : paths_(paths.begin(), paths.end()),
      changes_(changes.begin(), changes.end()),
      model_(load_vocabulary(paths, changes)),
      kind_of_words_(kind_of_words(*model_)),
      most_bytes_of_words_(most_bytes_of_words),
      memo_(kMemoBytes) {
  vocab_ = llama_model_get_vocab(model_.get());
  n_vocab_ = llama_vocab_n_tokens(vocab_);
  has_tokens_ = n_vocab_ > 0 && llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE;
  const enum llama_vocab_type type = llama_vocab_type(vocab_);
  is_local_ = type == LLAMA_VOCAB_TYPE_SPM || type == LLAMA_VOCAB_TYPE_BPE;
  has_deep_words_ = type == LLAMA_VOCAB_TYPE_BPE && !has_loops_of_libllama(kind_of_words_);
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
      std::vector<std::string>& searched = is_parsed_only ? if_parsed : always;
      if (searched.size() < kMostSpecials) searched.push_back(all.back());
      specials_.all.push_back({.token = token,
                               .text = all.back(),
                               .is_parsed_only = is_parsed_only,
                               .strips_before = (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                               .strips_after = (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0});
    }
    // libllama's order, in which those of one length are as its sort leaves them.
    std::sort(specials_.all.begin(), specials_.all.end(),
              [](const SpecialText& a, const SpecialText& b) { return a.text.size() > b.text.size(); });
    specials_.always = certain_specials(all, always);
    specials_.if_parsed = certain_specials(all, if_parsed);
  });
  return specials_;
}

const WordTokenizer& Tokenizer::words() const {
  std::call_once(words_once_, [this] { words_ = std::make_unique<WordTokenizer>(paths_, changes_, kind_of_words_); });
  return *words_;
}

bool Tokenizer::is_too_long(std::string_view piece) const { return is_local_ && piece.size() > most_bytes_of_words_; }

std::vector<Token> Tokenizer::piece_tokens(std::string_view piece, bool parse_special) const {
  if (!is_too_long(piece)) return tokens_of(piece, false, parse_special);
  std::vector<Token> tokens;
  for (const TextFragment& fragment : fragments_of(piece, specials().all, parse_special)) {
    if (fragment.token) {
      tokens.push_back(*fragment.token);
    } else {
      const std::vector<Token> more =
          has_deep_words_ ? words().tokens(fragment.text) : tokens_of(fragment.text, false, false);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
  }
  return tokens;
}

// Only texts that are long enough for it to matter are cut.
std::vector<std::size_t> Tokenizer::cuts(std::string_view text, bool parse_special) const {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 12;
  if (text.size() <= 2 * kPieceBytes || !is_local_) return {0};
  std::vector<std::string> certain = specials().always;
  if (parse_special) certain.insert(certain.end(), specials().if_parsed.begin(), specials().if_parsed.end());
  return cuts_at_specials(text, certain, kPieceBytes);
}

std::vector<Token> Tokenizer::tokenize(std::string_view text, bool add_special, bool parse_special) const {
  require_tokens();
  check_utf8(text, "the text");
  if (text.size() > kMostBytes - kAdded) {
    throw Error(ErrorCode::kInvalidArgument, "the text has " + std::to_string(text.size()) +
                                                 " bytes, but a tokenizer takes at most " +
                                                 std::to_string(kMostBytes - kAdded) + ": split it");
  }
  std::vector<Token> tokens;
  const std::vector<std::size_t> begins = cuts(text, parse_special);
  if (begins.size() == 1 && !is_too_long(text)) {
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

std::span<const Token> Tokenizer::suppressed_tokens() const {
  std::int32_t n = 0;
  const llama_token* tokens = llama_vocab_get_suppress_tokens(vocab_, &n);
  return {tokens, static_cast<std::size_t>(n)};
}

bool Tokenizer::is_end_of_generation(Token token) const { return has_tokens_ && llama_vocab_is_eog(vocab_, token); }

}  // namespace winnow
