// "Did you mean ...": the nearest of a list of names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The first of the nearest. `names` is not empty.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace winnow
