// Tokens of texts of any length for the tokenizers of byte pairs whose words libllama finds with std::regex, which
// recurses once a character (word_patterns.h): winnow splits the text, and libllama merges the byte pairs of each word.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf/gguf_file.h"
#include "text/vocabulary_file.h"
#include "text/word_splitter.h"
#include "winnow/token.h"

struct llama_vocab;

namespace winnow {

// Immutable; several threads may use it at once.
class WordTokenizer {
 public:
  // Takes a model's files and changes as load_vocabulary does, and the name of its pre-tokenizer, of which there are
  // rules; loads the vocabulary a second time, with a pre-tokenizer that leaves words as they are. Throws what
  // load_vocabulary throws.
  WordTokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes, std::string_view kind);

  // Returns the tokens of a text (UTF-8) in which no special token is looked for.
  std::vector<Token> tokens(std::string_view text) const;

 private:
  // Appends the tokens of words, given by the names of their bytes with a line's end behind each, and clears them.
  void take(std::string& words, std::vector<Token>& tokens) const;

  WordSplitter splitter_;
  Vocabulary model_;
  const llama_vocab* vocab_ = nullptr;
  std::size_t most_together_ = 0;  // bytes of words that libllama gets at a time; 0: each word alone
  std::unordered_map<std::string_view, Token> whole_words_;  // tokens by their texts, if words may be whole tokens
};

}  // namespace winnow
