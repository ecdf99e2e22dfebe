// "Did you mean ...": the nearest of a list of names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b. Takes |a| * |b| steps and numbers.
int edit_distance(std::string_view a, std::string_view b);

// The name of which `wrong` is the beginning or which begins it, else the first of those with the fewest edits, or ""
// when none is close enough to be meant. Of `wrong` the first 64 bytes count; capitals are small letters.
std::string_view nearest_name(std::string_view wrong, const std::vector<std::string_view>& names);

// For a message that says where the names are listed: "; did you mean snapkv?", or ";" where none is near.
std::string name_question(std::string_view wrong, const std::vector<std::string_view>& names);

// The end of a message that says that there is no `wrong`: "did you mean 'snapkv'?", or, where nothing is near, the
// names: "there are 'a', 'b' and 'c'".
std::string name_advice(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace winnow
