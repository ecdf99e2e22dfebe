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
#include "text/token_pieces.h"
#include "text/word_breaks.h"
#include "winnow/model.h"

struct llama_model;
struct llama_vocab;

namespace winnow {

// A tokenizer. Immutable; all methods may be called from several threads at once. A file without a tokenizer can be
// loaded, and the methods that need its tokens then throw Error(kUnsupported).
class Tokenizer {
 public:
  // The most bytes of a text for one call of libllama whose depth grows with words. They take 3 MB of a thread's stack
  // of 8, and are twice what the longest tokens need.
  static constexpr std::size_t kWindowBytes = std::size_t{1} << 13;

  // Takes the files of a model, the first of which has the metadata, and changes to that, as GgufFile does; those that
  // do not concern the tokenizer are passed over. Loads no weights. Tests give other windows, for texts that are
  // shorter. Throws Error(kBadFile) with libllama's reason.
  explicit Tokenizer(std::span<const std::string> paths, std::span<const MetadataChange> changes = {},
                     std::size_t window_bytes = kWindowBytes);
  explicit Tokenizer(const std::string& path, std::size_t window_bytes = kWindowBytes)
      : Tokenizer(std::span(&path, 1), {}, window_bytes) {}

  // Each does what the method of Model with the same name does.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  std::string token_text(Token token, bool special = false) const;
  std::string detokenize(std::span<const Token> tokens) const;
  bool is_end_of_generation(Token token) const;
  std::optional<Token> special_token(SpecialToken which) const;

  // Owned by the tokenizer.
  const llama_vocab* vocab() const { return vocab_; }
  const llama_model* model() const { return model_.get(); }
  // Returns the number of tokens that the file lists; may be 0 in a file without a tokenizer.
  int n_vocab() const { return n_vocab_; }
  bool has_tokens() const { return has_tokens_; }
  // Returns the sorted texts of the tokens, which are made when they are first asked for.
  const TokenPieces& pieces() const;

 private:
  struct ModelDeleter {
    void operator()(llama_model* model) const;
  };

  // Special tokens' texts, before which a long text is cut.
  struct Specials {
    std::vector<std::string> always, if_parsed;  // valid in every text; valid if special tokens are parsed
    bool are_apart_from_words = true;  // no special text contains or touches a place where a word certainly begins
  };

  // The bytes that one call of libllama reads, in the middle of a long word.
  struct Window {
    std::size_t n_tokens_before = 0;  // tokens of the window before it that count
    std::size_t begin = 0;
    std::string_view before;  // bytes that the call read before them
    std::vector<Token> tokens;
    std::string_view head;  // beginning of the word that it begins in
  };

  void require_tokens() const;
  // Returns the tokens of a text by one call of libllama.
  std::vector<Token> tokens_of(std::string_view text, bool add_special, bool parse_special) const;

  // Long words in windows (tokenizer_windows.cc).
  // Returns the tokens of a piece, without begin and end tokens, by calls that are not too deep.
  std::vector<Token> piece_tokens(std::string_view piece, bool parse_special) const;
  bool is_too_deep(std::string_view piece) const;
  std::vector<std::size_t> ends_of(const std::vector<Token>& tokens, std::string_view text) const;
  std::vector<Token> tokens_behind(std::string_view head, std::string_view text, bool parse_special) const;
  // Returns the beginning of the word that goes over a place in a window which begins at `begin`, about an eighth of a
  // window and at most a quarter; `head`, the window's own, if the word did not begin in it.
  std::string_view head_of(std::string_view piece, std::size_t begin, std::size_t place,
                           const std::vector<Token>& window, std::string_view head) const;
  // Returns the window after the one whose bytes [begin, end) have the tokens `window`.
  Window next_window(std::string_view piece, std::string_view head, std::size_t begin, std::size_t end,
                     const std::vector<Token>& window, bool parse_special) const;

  const Specials& specials() const;
  // Returns the places at which a text is cut into pieces, 0 first.
  std::vector<std::size_t> cuts(std::string_view text, bool parse_special) const;
  void require_token(Token token) const;

  std::unique_ptr<llama_model, ModelDeleter> model_;  // the vocabulary and the metadata only
  const llama_vocab* vocab_ = nullptr;
  int n_vocab_ = 0;
  bool has_tokens_ = false;
  bool adds_begin_token_ = false;
  bool adds_end_token_ = false;
  bool is_of_byte_pairs_ = false;
  const std::size_t window_bytes_;
  WordBreaks breaks_;
  mutable std::once_flag pieces_once_;
  mutable std::unique_ptr<const TokenPieces> pieces_;
  mutable std::once_flag specials_once_;
  mutable Specials specials_;
  mutable PieceMemo memo_;
};

}  // namespace winnow
