#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cli/text_output.h"
#include "winnow/error.h"

namespace winnow::cli {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Error(ErrorCode::kIo, "cannot write '" + path + "': " + std::strerror(errno));
}

// Opens a new file of a name that nobody has, beside `path`.
int open_beside(const std::string& path, std::string& name) {
  name = path + ".XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) fail(path);
  return file;
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (is_stdout()) return;
  if (path_.empty()) throw Error(ErrorCode::kInvalidArgument, "the path of the output file is empty");
  struct stat existing = {};
  if (stat(path_.c_str(), &existing) == 0) {
    if (S_ISDIR(existing.st_mode)) {
      errno = EISDIR;
      fail(path_);
    }
    if (access(path_.c_str(), W_OK) != 0) fail(path_);
    in_place_ = !S_ISREG(existing.st_mode);
    if (in_place_) return;
  }
  std::string probe;
  close(open_beside(path_, probe));
  unlink(probe.c_str());
}

void OutputFile::write(std::string_view content) const {
  if (is_stdout()) {
    write_all(STDOUT_FILENO, content, "the standard output");
    return;
  }
  std::string name = path_;
  const int file = in_place_ ? open(path_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC) : open_beside(path_, name);
  if (file < 0) fail(path_);
  try {
    write_all(file, content, "'" + path_ + "'");
    if (in_place_) {
      close(file);
      return;
    }
    // mkstemp makes private files; a result has the rights of any other new file.
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(file, 0666 & ~mask) != 0 || fsync(file) != 0 || close(file) != 0) fail(path_);
    if (std::rename(name.c_str(), path_.c_str()) != 0) fail(path_);
  } catch (...) {
    if (!in_place_) unlink(name.c_str());
    throw;
  }
}

}  // namespace winnow::cli
