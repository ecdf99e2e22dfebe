// The files of data/eval and the table of tasks, compiled into the program so that it runs from anywhere.
#pragma once

#include <span>
#include <string_view>

namespace winnow::eval {

struct ShippedFile {
  std::string_view name;  // "tasks.json", "text/will-warburton.txt", ...
  std::string_view text;
};

std::span<const ShippedFile> shipped_files();
// Returns an empty text for a name that does not exist, which is a bug of ours.
std::string_view shipped_file(std::string_view name);

}  // namespace winnow::eval
