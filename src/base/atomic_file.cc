#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

[[noreturn]] void fail(const std::string& path, int reason) {
  throw Error(ErrorCode::kIo,
              "cannot write '" + path + "' (" + std::strerror(reason) + "): check the folder and the free space");
}

}  // namespace

int write_all(int descriptor, std::string_view bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux writes at most 2 GiB at once
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMost));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

AtomicFile::AtomicFile(std::string path, unsigned mode) : path_(std::move(path)) {
  static std::atomic<unsigned> number{0};
  // A killed process of the same id may have left a file of that name.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = path_ + ".tmp." + std::to_string(getpid()) + "." + std::to_string(number++);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode));
    if (descriptor_ >= 0) return;
    if (errno != EEXIST) break;
  }
  fail(path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  if (const int reason = write_all(descriptor_, bytes); reason != 0) fail(path_, reason);
}

void AtomicFile::write_over_begin(std::string_view bytes) {
  if (lseek(descriptor_, 0, SEEK_SET) != 0) fail(path_, errno);
  write(bytes);
}

void AtomicFile::flush() {
  if (fsync(descriptor_) != 0) fail(path_, errno);
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed != 0) fail(path_, errno);
}

void AtomicFile::commit() {
  flush();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  temporary_.clear();
}

bool AtomicFile::commit_new() {
  flush();
  // Unlike a rename, a link fails if the file exists.
  const bool is_new = link(temporary_.c_str(), path_.c_str()) == 0;
  if (!is_new && errno != EEXIST) fail(path_, errno);
  return is_new;
}

void write_file(const std::string& path, std::string_view content, unsigned mode) {
  AtomicFile file(path, mode);
  file.write(content);
  file.commit();
}

}  // namespace winnow
