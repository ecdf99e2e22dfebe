#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "winnow/error.h"

namespace winnow {
namespace {

[[noreturn]] void fail(const std::string& path, int reason) {
  throw Error(ErrorCode::kIo,
              "cannot write '" + path + "' (" + std::strerror(reason) + "): check the folder and the free space");
}

// Returns the path that the symbolic links of a path lead to, which need not exist.
std::string behind_links(const std::string& path) {
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::filesystem::path target = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!std::filesystem::is_symlink(target, error)) return target.string();
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) fail(path, error.value());
    target = target.parent_path() / next;  // `next` itself if it is absolute
  }
  fail(path, ELOOP);
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

AtomicFile::AtomicFile(std::string path, unsigned mode) : path_(std::move(path)), target_(behind_links(path_)) {
  static std::atomic<unsigned> number{0};
  struct stat old = {};
  const bool is_there = stat(target_.c_str(), &old) == 0;
  if (is_there && S_ISDIR(old.st_mode)) fail(path_, EISDIR);
  if (is_there && !S_ISREG(old.st_mode)) {
    throw Error(ErrorCode::kIo, "cannot write '" + path_ + "': it is a device or a pipe; name a file");
  }
  if (is_there) mode &= old.st_mode;
  // A killed process of the same id may have left a file of that name.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = target_ + ".tmp." + std::to_string(getpid()) + "." + std::to_string(number++);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, static_cast<mode_t>(mode));
    if (descriptor_ >= 0 || errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail(path_, errno);
  // The umask has no say in the permissions of an old file; a file system without permissions refuses this.
  if (is_there) static_cast<void>(fchmod(descriptor_, static_cast<mode_t>(mode)));
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
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(path_, errno);
  temporary_.clear();
}

bool AtomicFile::commit_new() {
  flush();
  // Unlike a rename, a link fails if the file exists.
  const bool is_new = link(temporary_.c_str(), target_.c_str()) == 0;
  if (!is_new && errno != EEXIST) fail(path_, errno);
  return is_new;
}

void write_file(const std::string& path, std::string_view content, unsigned mode) {
  AtomicFile file(path, mode);
  file.write(content);
  file.commit();
}

}  // namespace winnow
