// A result file that is written completely or stays as it was before.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::cli {

// For results of long work: the constructor checks that the path can be written, so that the work is not done in vain,
// and leaves no file; write() fills a temporary file next to the path and renames it.
// "-" is the standard output; a path that is not a regular file (/dev/null, a pipe) is written directly.
class OutputFile {
 public:
  // Throws Error(kIo), or UsageError for an empty path.
  explicit OutputFile(std::string path);

  void write(std::string_view content) const;
  bool is_stdout() const { return path_ == "-"; }

 private:
  std::string path_;
  bool in_place_ = false;
};

// A flag that names an output, and its value if it is given.
struct OutputFlag {
  const char* name;
  std::optional<std::string> path;
};

// Throws UsageError if two of the flags name the same file, or both the standard output.
void check_outputs(std::initializer_list<OutputFlag> flags);

}  // namespace winnow::cli
