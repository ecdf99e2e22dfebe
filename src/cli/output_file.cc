#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "cli/command_line.h"
#include "cli/text_output.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

[[noreturn]] void fail_to_write_output(const std::string& path) {
  throw Error(ErrorCode::kIo, "cannot write '" + path + "': " + std::strerror(errno));
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (is_stdout()) return;
  if (path_.empty()) throw UsageError("the path of the output file is empty: name a file, or leave the flag out");
  struct stat existing = {};
  if (stat(path_.c_str(), &existing) == 0) {
    if (S_ISDIR(existing.st_mode)) {
      errno = EISDIR;
      fail_to_write_output(path_);
    }
    if (access(path_.c_str(), W_OK) != 0) fail_to_write_output(path_);
    in_place_ = !S_ISREG(existing.st_mode);
    if (in_place_) return;
  }
  const AtomicFile probe(path_);
}

void OutputFile::write(std::string_view content) const {
  if (is_stdout()) {
    write_output(content);
    return;
  }
  if (!in_place_) {
    write_file(path_, content);
    return;
  }
  const int file = open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) fail_to_write_output(path_);
  const int reason = winnow::write_all(file, content);
  close(file);
  errno = reason;
  if (reason != 0 && reason != EPIPE) fail_to_write_output(path_);  // a reader that closes a pipe has seen enough
}

void check_outputs(std::initializer_list<OutputFlag> flags) {
  std::map<std::string, const char*> outputs;
  for (const OutputFlag& flag : flags) {
    if (!flag.path) continue;
    std::error_code ignored;
    const bool is_stdout = *flag.path == "-";
    const std::string path = is_stdout ? "-" : std::filesystem::weakly_canonical(*flag.path, ignored).string();
    const auto [other, is_new] = outputs.emplace(path.empty() ? *flag.path : path, flag.name);
    if (is_new) continue;
    throw UsageError(std::string(other->second) + " and " + flag.name + " both write to " +
                     (is_stdout ? "the standard output" : "'" + *flag.path + "'") + ": give one of them another file");
  }
}

}  // namespace winnow::cli
