// The places before special tokens where a text may be cut so that the pieces have the tokens of the whole. libllama's
// search for special tokens takes time in proportion to the square of their number in a text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// Returns those of the `searched` texts of special tokens at each occurrence of which libllama begins a token: no text
// of `all` special tokens overlaps them or contains them after its beginning.
std::vector<std::string> certain_specials(const std::vector<std::string>& all,
                                          const std::vector<std::string>& searched);

// Returns the beginnings of pieces of about piece_bytes bytes or more, ascending, 0 first. At each of the others one of
// the `certain` texts begins, without white space before it that could belong to its token.
std::vector<std::size_t> cuts_at_specials(std::string_view text, const std::vector<std::string>& certain,
                                          std::size_t piece_bytes);

}  // namespace winnow
