#include "cli/prompt_source.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <system_error>
#include <utility>

#include "cli/command_line.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

std::string read_stream(std::istream& stream, const std::string& name) {
  std::ostringstream content;
  content << stream.rdbuf();
  std::string text = std::move(content).str();
  if (stream.bad()) throw Error(ErrorCode::kIo, "reading " + name + " failed: " + std::strerror(errno));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  if (path == "-") return read_stream(std::cin, "the standard input");
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorCode::kInvalidArgument, "'" + path + "' is a directory; -f takes a text file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const bool missing = errno == ENOENT;
    throw Error(missing ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot read '" + path + "': " + std::strerror(errno));
  }
  return read_stream(file, "'" + path + "'");
}

std::string read_prompt(const PromptFlags& flags) {
  if (flags.text && flags.file) throw UsageError("-p and -f both give a prompt: use one of them");
  if (flags.text && flags.text->empty()) throw UsageError("the prompt of -p is empty: give some text");
  std::string text;
  if (flags.text) {
    text = *flags.text;
  } else if (flags.file) {
    text = read_text_file(*flags.file);
  } else if (isatty(STDIN_FILENO) == 0) {
    text = read_text_file("-");
  } else {
    throw UsageError("there is no prompt: give one with -p TEXT or -f FILE, or pipe it in");
  }
  if (text.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: give some text with -p or -f");
  return text;
}

}  // namespace winnow::cli
