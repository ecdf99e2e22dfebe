// The special tokens in a text, and the places before them where it may be cut so that the pieces have the tokens of
// the whole: libllama's search for special tokens takes time in proportion to the square of their number in a text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/token.h"

namespace winnow {

// Returns those of the `searched` texts of special tokens at each occurrence of which libllama begins a token: no text
// of `all` special tokens overlaps them or contains them after its beginning.
std::vector<std::string> certain_specials(const std::vector<std::string>& all,
                                          const std::vector<std::string>& searched);

// Returns the beginnings of pieces of about piece_bytes bytes or more, ascending, 0 first. At each of the others one of
// the `certain` texts begins, without white space before it that could belong to its token.
std::vector<std::size_t> cuts_at_specials(std::string_view text, const std::vector<std::string>& certain,
                                          std::size_t piece_bytes);

struct SpecialText {
  Token token = 0;
  std::string text;
  bool is_parsed_only = false;  // only looked for if special tokens are parsed
  bool strips_before = false;   // white space before it goes
  bool strips_after = false;
};

// A special token, or a text in which there is none.
struct TextFragment {
  std::string_view text;
  std::optional<Token> token;
};

// Returns the fragments of a text as libllama finds them: each of the special tokens is looked for in what those before
// it left.
std::vector<TextFragment> fragments_of(std::string_view text, std::span<const SpecialText> specials,
                                       bool parse_special);

}  // namespace winnow
