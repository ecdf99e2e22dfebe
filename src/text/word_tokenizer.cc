#include "text/word_tokenizer.h"

#include <llama.h>

#include <array>
#include <cstdint>

#include "base/utf8.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Splits texts at ends of lines alone, and takes characters in the place of bytes.
constexpr const char* kKindOfWholeWords = "sarvam-moe";

constexpr std::size_t kMostTogether = std::size_t{1} << 20;

// Returns the characters, in UTF-8, that stand for the bytes in the vocabularies of byte pairs: visible characters of
// Latin-1 for themselves, and those from U+0100 for the others in their order.
const std::array<std::string, 256>& byte_names() {
  static const std::array<std::string, 256> names = [] {
    std::array<std::string, 256> made;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
      made[byte] = utf8_of(is_visible ? byte : next++);
    }
    return made;
  }();
  return names;
}

std::vector<Token> tokens_of(const llama_vocab* vocab, std::string_view words) {
  std::vector<Token> tokens(words.size());
  const std::int32_t n = llama_tokenize(vocab, words.data(), static_cast<std::int32_t>(words.size()), tokens.data(),
                                        static_cast<std::int32_t>(tokens.size()), false, false);
  if (n < 0) throw Error(ErrorCode::kInternal, "libllama gives more tokens than bytes: please report this");
  tokens.resize(static_cast<std::size_t>(n));
  return tokens;
}

std::span<const WordRule> rules_of(std::string_view kind) {
  const std::span<const WordRule> rules = word_rules(kind);
  if (!rules.empty()) return rules;
  throw Error(ErrorCode::kUnsupported,
              "winnow does not know the words of the pre-tokenizer '" + std::string(kind) +
                  "' (tokenizer.ggml.pre), which long texts need: use the libllama that `make` builds");
}

}  // namespace

WordTokenizer::WordTokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes,
                             std::string_view kind)
    : splitter_(rules_of(kind)),
      model_(load_vocabulary(paths, changes, kKindOfWholeWords)),
      vocab_(llama_model_get_vocab(model_.get())) {
  // An end of a line between two words has no token, unless the vocabulary has one that begins or ends with it.
  bool has_line_ends = !tokens_of(vocab_, "\n").empty();
  const bool takes_whole = takes_whole_words(kind);
  for (Token token = 0; token < llama_vocab_n_tokens(vocab_); ++token) {
    const std::string_view text = llama_vocab_get_text(vocab_, token);
    if (text.find('\n') != std::string_view::npos) has_line_ends = true;
    if (takes_whole) whole_words_.emplace(text, token);
  }
  most_together_ = has_line_ends ? 0 : kMostTogether;
}

void WordTokenizer::take(std::string& words, std::vector<Token>& tokens) const {
  if (words.empty()) return;
  words.pop_back();
  const std::vector<Token> more = tokens_of(vocab_, words);
  tokens.insert(tokens.end(), more.begin(), more.end());
  words.clear();
}

std::vector<Token> WordTokenizer::tokens(std::string_view text) const {
  const std::array<std::string, 256>& names = byte_names();
  std::vector<Token> tokens;
  std::string words, word;
  std::size_t begin = 0;
  for (const std::size_t end : splitter_.ends(text)) {
    word.clear();
    for (const char byte : text.substr(begin, end - begin)) word += names[static_cast<unsigned char>(byte)];
    begin = end;
    if (const auto whole = whole_words_.find(word); whole != whole_words_.end()) {
      take(words, tokens);
      tokens.push_back(whole->second);
      continue;
    }
    words += word;
    words += '\n';
    if (words.size() >= most_together_) take(words, tokens);
  }
  take(words, tokens);
  return tokens;
}

}  // namespace winnow
