#include "engine/checked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fnv1a.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr char kMagic[8] = {'w', 'i', 'n', 'n', 'o', 'w', 'K', 'V'};
constexpr std::uint32_t kVersion = 2;

// The body follows it.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t body_bytes;
  std::uint64_t checksum;  // FNV-1a of the body
};

[[noreturn]] void throw_io(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::kIo, what + " '" + path + "': " + std::strerror(errno));
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw_io("cannot write the session file", path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// Unique in this process and to it, so that two savers of one path do not write into each other's file.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> n_made{0};
  return path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(n_made++);
}

}  // namespace

// The temporary file behind a stream. What it throws passes through the stream.
class CheckedFileWriter::Stream : public std::streambuf {
 public:
  explicit Stream(const std::string& path)
      : name_(temporary_name(path)), fd_(open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (fd_ < 0) throw_io("cannot create the session file", name_);
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }
  ~Stream() override {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Of what was written so far.
  void write_header() {
    flush();
    FileHeader header{};
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    header.version = kVersion;
    header.body_bytes = n_bytes_;
    header.checksum = hash_.value();
    if (lseek(fd_, 0, SEEK_SET) != 0) throw_io("cannot write the session file", name_);
    write_all(fd_, {reinterpret_cast<const char*>(&header), sizeof(header)}, name_);
  }

  void commit(const std::string& path) {
    write_header();
    if (fsync(fd_) != 0 || close(std::exchange(fd_, -1)) != 0) throw_io("cannot write the session file", name_);
    if (std::rename(name_.c_str(), path.c_str()) != 0) throw_io("cannot write the session file", path);
    name_.clear();
  }

 protected:
  int_type overflow(int_type c) override {
    flush();
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      *pptr() = traits_type::to_char_type(c);
      pbump(1);
    }
    return traits_type::not_eof(c);
  }
  int sync() override {
    flush();
    return 0;
  }

 private:
  void flush() {
    const std::string_view bytes(pbase(), static_cast<std::size_t>(pptr() - pbase()));
    write_all(fd_, bytes, name_);
    hash_.add(bytes);
    n_bytes_ += bytes.size();
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }

  std::string name_;  // empty once it is renamed
  int fd_;
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  Fnv1a hash_;
  std::uint64_t n_bytes_ = 0;
};

CheckedFileWriter::CheckedFileWriter(std::string path)
    : path_(std::move(path)), stream_(std::make_unique<Stream>(path_)), body_(stream_.get()) {
  body_.exceptions(std::ios::badbit);
  stream_->write_header();  // its place
}

CheckedFileWriter::~CheckedFileWriter() = default;

std::ostream& CheckedFileWriter::body() { return body_; }
void CheckedFileWriter::commit() { stream_->commit(path_); }

CheckedFileReader::CheckedFileReader(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                "cannot open the session file '" + path + "': " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::kBadFile, "'" + path + "' is not a session file");
  in_.open(path, std::ios::binary);
  FileHeader header{};
  in_.read(reinterpret_cast<char*>(&header), sizeof(header));
  if (!in_ || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    throw Error(ErrorCode::kBadFile, "'" + path + "' is not a session file of winnow");
  }
  if (header.version != kVersion) {
    throw Error(ErrorCode::kBadFile, "the session file '" + path + "' has the format version " +
                                         std::to_string(header.version) + ", this winnow reads " +
                                         std::to_string(kVersion) + ": prefill the prompt again");
  }
  if (header.body_bytes != static_cast<std::uint64_t>(info.st_size) - sizeof(header)) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' is truncated or damaged: prefill the prompt again");
  }
  body_bytes_ = static_cast<std::size_t>(header.body_bytes);
  Fnv1a hash;
  std::vector<char> buffer(std::min(kBufferBytes, body_bytes_));
  for (std::size_t left = body_bytes_; left > 0 && in_;) {
    const std::size_t n = std::min(left, buffer.size());
    in_.read(buffer.data(), static_cast<std::streamsize>(n));
    hash.add({buffer.data(), n});
    left -= n;
  }
  if (!in_ || hash.value() != header.checksum) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' is damaged (its checksum does not match): prefill the prompt again");
  }
  in_.seekg(sizeof(header));
}

}  // namespace winnow
