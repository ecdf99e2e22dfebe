// Writes generated text and results to the standard output.
#pragma once

#include <string>
#include <string_view>

namespace winnow::cli {

// Writes everything to a file descriptor. Returns false if the reader of a pipe has gone; throws Error(kIo) naming
// `name` for other failures. SIGPIPE must be ignored.
bool write_all(int descriptor, std::string_view bytes, const std::string& name);

// Writes everything to the standard output, as write_all does.
bool write_output(std::string_view text);

}  // namespace winnow::cli
