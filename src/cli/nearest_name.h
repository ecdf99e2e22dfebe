// "did you mean" for commands and flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::cli {

// The name with the fewest edits (insert, delete, replace, swap neighbours), or "" when none is close enough to be meant.
std::string nearest_name(std::string_view wrong, std::span<const std::string> names);

}  // namespace winnow::cli
