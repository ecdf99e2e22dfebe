// Where a prompt comes from: -p, -f or a pipe.
#pragma once

#include <optional>
#include <string>

namespace winnow::cli {

struct PromptFlags {
  std::optional<std::string> text;  // -p
  std::optional<std::string> file;  // -f; "-" is the standard input
};

// A whole file without one newline at its end, as llama.cpp reads it; "-" is the standard input.
std::string read_text_file(const std::string& path);

// The prompt: -p, else -f, else the standard input if something is piped into it. Throws Error (kNotFound, kIo,
// kInvalidArgument for an empty one) and UsageError when there is none or two are given.
std::string read_prompt(const PromptFlags& flags);

}  // namespace winnow::cli
