// Reads the texts that flags name.
#pragma once

#include <string>

#include "base/input_file.h"

namespace winnow::cli {

// Removes one newline at the end of a text, as llama.cpp does.
void drop_newline(std::string& text);

// Returns a text of at most the kind's size, without a byte order mark and without one newline at its end; "-" is the
// standard input.
std::string read_text_file(const std::string& path, const InputKind& kind);

// Returns the same for a text that others are taken from; it is the same whatever system wrote it: see running_text.
std::string read_running_text(const std::string& path);

}  // namespace winnow::cli
