// Where a text may be cut before a special token, so that the pieces have the tokens of the whole. libllama's search
// for special tokens takes time in proportion to the square of how many a text has.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// Texts of special tokens, at each occurrence of which in any text libllama begins a token: what no other special token
// can overlap, nor hold further inside. `all`: of every special token; `searched`: of those that are searched for.
std::vector<std::string> certain_specials(const std::vector<std::string>& all,
                                          const std::vector<std::string>& searched);

// Beginnings of pieces of about piece_bytes bytes or more, ascending, 0 first. Each other one is where one of `certain`
// begins, with no white space before it, which a token might take along.
std::vector<std::size_t> cuts_at_specials(std::string_view text, const std::vector<std::string>& certain,
                                          std::size_t piece_bytes);

}  // namespace winnow
