// The tokenizer of a model file, from text to tokens and back, by libllama.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"
#include "text/piece_memo.h"
#include "text/special_tokens.h"
#include "text/token_pieces.h"
#include "text/vocabulary_file.h"
#include "text/word_tokenizer.h"
#include "winnow/token.h"

struct llama_model;
struct llama_vocab;

namespace winnow {

// A tokenizer. Immutable; all methods may be called from several threads at once. A file without a tokenizer can be
// loaded, and the methods that need its tokens then throw Error(kUnsupported).
class Tokenizer {
 public:
  // The most bytes of a text for one call of libllama. Its depth may grow with words, and these take 3 MB of a thread's
  // stack of 8; its time grows with the square of the number of special tokens.
  static constexpr std::size_t kMostBytesOfWords = std::size_t{1} << 13;

  // Takes the files of a model, the first of which has the metadata, and changes to that, as GgufFile does; those that
  // do not concern the tokenizer are passed over. Loads no weights. Tests give other limits, for texts that are
  // shorter. Throws Error(kBadFile) with libllama's reason.
  explicit Tokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes = {},
                     std::size_t most_bytes_of_words = kMostBytesOfWords);
  explicit Tokenizer(const std::string& path, std::size_t most_bytes_of_words = kMostBytesOfWords)
      : Tokenizer(std::span(&path, 1), {}, most_bytes_of_words) {}

  // Each does what the method of Model with the same name does.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string token_text(Token token, bool special = false) const;
  std::string detokenize(std::span<const Token> tokens) const;
  bool is_end_of_generation(Token token) const;
  std::optional<Token> special_token(SpecialToken which) const;

  // Returns the tokens that the file forbids in answers (tokenizer.ggml.suppress_tokens).
  std::span<const Token> suppressed_tokens() const;

  // Owned by the tokenizer.
  const llama_vocab* vocab() const { return vocab_; }
  const llama_model* model() const { return model_.get(); }
  // Returns the number of tokens that the file lists; may be 0 in a file without a tokenizer.
  int n_vocab() const { return n_vocab_; }
  bool has_tokens() const { return has_tokens_; }
  // Returns the sorted texts of the tokens, which are made when they are first asked for.
  const TokenPieces& pieces() const;

 private:
  struct Specials {
    std::vector<SpecialText> all;  // in the order in which libllama looks for them
    // Texts before which a long text is cut: in every text, and if special tokens are parsed.
    std::vector<std::string> always, if_parsed;
  };

  void require_tokens() const;
  // Returns the tokens of a text by one call of libllama.
  std::vector<Token> tokens_of(std::string_view text, bool add_special, bool parse_special) const;

  // Returns the tokens of a piece, without begin and end tokens, by calls that are not too long.
  std::vector<Token> piece_tokens(std::string_view piece, bool parse_special) const;
  bool is_too_long(std::string_view piece) const;
  const WordTokenizer& words() const;

  const Specials& specials() const;
  // Returns the places at which a text is cut into pieces, 0 first.
  std::vector<std::size_t> cuts(std::string_view text, bool parse_special) const;
  void require_token(Token token) const;

  const std::vector<std::string> paths_;
  const std::vector<MetadataChange> changes_;
  const Vocabulary model_;
  const llama_vocab* vocab_ = nullptr;
  int n_vocab_ = 0;
  bool has_tokens_ = false;
  bool adds_begin_token_ = false;
  bool adds_end_token_ = false;
  bool is_local_ = false;  // it looks no further than from one special token to the next
  const std::string kind_of_words_;
  bool has_deep_words_ = false;  // libllama recurses once for each character of a word
  const std::size_t most_bytes_of_words_;
  mutable std::once_flag pieces_once_;
  mutable std::unique_ptr<const TokenPieces> pieces_;
  mutable std::once_flag specials_once_;
  mutable Specials specials_;
  mutable std::once_flag words_once_;
  mutable std::unique_ptr<const WordTokenizer> words_;  // made for the first long text of a kind that needs it
  mutable PieceMemo memo_;
};

}  // namespace winnow
