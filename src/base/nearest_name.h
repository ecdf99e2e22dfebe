// "Did you mean ...": the nearest of a list of names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// Returns the least number of insertions, deletions, substitutions and swaps of neighbours that turn a into b. Takes
// |a| * |b| steps and numbers.
int edit_distance(std::string_view a, std::string_view b);

// Returns the first name that begins with `wrong` or that `wrong` begins with, else the first of the names with the
// fewest edits, or "" if no name is near. Only the first 64 bytes of `wrong` count; capitals count as small letters.
std::string_view nearest_name(std::string_view wrong, const std::vector<std::string_view>& names);

// Returns the question for a message that says where the names are listed: "; did you mean snapkv?", or ";" if no name
// is near.
std::string name_question(std::string_view wrong, const std::vector<std::string_view>& names);

// Returns the end of a message that says that there is no `wrong`: "did you mean 'snapkv'?", or the list of the names
// if none is near: "choose 'a', 'b' or 'c'".
std::string name_advice(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace winnow
