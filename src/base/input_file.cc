#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 16;
constexpr std::size_t kLeastRead = std::size_t{1} << 12;  // most files are small

std::string size_text(std::size_t bytes) {
  return bytes % input::kMiB == 0 ? std::to_string(bytes / input::kMiB) + " MiB" : std::to_string(bytes) + " bytes";
}

[[noreturn]] void refuse_size(const std::string& name, const InputKind& kind) {
  throw Error(ErrorCode::kBadFile,
              name + " is larger than " + size_text(kind.most_bytes) + ", the limit for " + kind.name);
}

}  // namespace

InputStream::InputStream(const std::string& path)
    : name_(path == "-" ? "the standard input" : "'" + path + "'"),
      descriptor_(path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw Error(ErrorCode::kIo, "cannot read " + name_ + ": " + std::strerror(errno));
  struct stat info = {};
  if (fstat(descriptor_, &info) == 0 && S_ISDIR(info.st_mode)) {
    if (descriptor_ != STDIN_FILENO) close(descriptor_);
    throw Error(ErrorCode::kIo, name_ + " is a directory: name a file");
  }
}

InputStream::~InputStream() {
  if (descriptor_ != STDIN_FILENO) close(descriptor_);
}

void InputStream::read(std::size_t n_bytes, std::string& text) {
  while (!ended_ && text.size() < n_bytes) {
    const std::size_t before = text.size();
    // The size doubles, so a small file takes little room and a large one few copies.
    const std::size_t wanted = std::min(n_bytes - before, std::max(kLeastRead, before));
    text.resize(before + wanted);
    const ssize_t count = ::read(descriptor_, text.data() + before, wanted);
    const int error = errno;
    text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) ended_ = true;
    if (count < 0 && error != EINTR) {
      throw Error(ErrorCode::kIo, "reading " + name_ + " failed: " + std::strerror(error));
    }
  }
}

std::optional<std::uint64_t> InputStream::size() const {
  struct stat info = {};
  // Files of /proc and the like report 0 bytes but have content.
  if (fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size <= 0) return std::nullopt;
  return static_cast<std::uint64_t>(info.st_size);
}

std::string read_input(const std::string& path, const InputKind& kind) {
  InputStream stream(path);
  if (stream.size().value_or(0) > kind.most_bytes) refuse_size(stream.name(), kind);
  std::string text;
  stream.read(kind.most_bytes + 1, text);
  if (text.size() > kind.most_bytes) refuse_size(stream.name(), kind);
  return text;
}

std::optional<std::string> InputLines::next() {
  std::size_t searched = begin_;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched);
    const std::size_t n_bytes = (end == std::string::npos ? buffer_.size() : end) - begin_;
    if (n_bytes > line_.most_bytes) refuse_size(stream_.name() + ", line " + std::to_string(number_ + 1), line_);
    if (end != std::string::npos || stream_.ended()) {
      if (end == std::string::npos && n_bytes == 0) return std::nullopt;
      std::string line = buffer_.substr(begin_, n_bytes);
      begin_ += n_bytes + (end == std::string::npos ? 0 : 1);
      ++number_;
      had_newline_ = end != std::string::npos;
      return line;
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    stream_.read(buffer_.size() + kBlock, buffer_);
  }
}

}  // namespace winnow
