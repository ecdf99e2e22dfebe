// "did you mean" for commands and flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::cli {

// The name of which `wrong` is the beginning or which begins it, else the one with the fewest edits (insert, delete,
// replace, swap neighbours), or "" when none is close enough to be meant.
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

}  // namespace winnow::cli
