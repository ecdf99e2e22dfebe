#include "engine/checked_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/fnv1a.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
constexpr char kMagic[8] = {'w', 'i', 'n', 'n', 'o', 'w', 'K', 'V'};

// The header of the file, followed by the body.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t body_bytes;
  std::uint64_t checksum;  // FNV-1a of the body
};

}  // namespace

// The stream buffer of the file. Its exceptions pass through the stream.
class CheckedFileWriter::Stream : public std::streambuf {
 public:
  explicit Stream(const std::string& path) : file_(path, 0600) {
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }

  // Writes the header for the bytes that were written so far.
  void write_header() {
    flush();
    FileHeader header{};
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    header.version = kSessionFileVersion;
    header.body_bytes = n_bytes_;
    header.checksum = hash_.value();
    file_.write_over_begin({reinterpret_cast<const char*>(&header), sizeof(header)});
  }

  void commit() {
    write_header();
    file_.commit();
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
    file_.write(bytes);
    hash_.add(bytes);
    n_bytes_ += bytes.size();
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }

  AtomicFile file_;
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  Fnv1a hash_;
  std::uint64_t n_bytes_ = 0;
};

CheckedFileWriter::CheckedFileWriter(const std::string& path)
    : stream_(std::make_unique<Stream>(path)), body_(stream_.get()) {
  body_.exceptions(std::ios::badbit);
  stream_->write_header();  // reserves its place
}

CheckedFileWriter::~CheckedFileWriter() = default;

std::ostream& CheckedFileWriter::body() { return body_; }
void CheckedFileWriter::commit() { stream_->commit(); }

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
  if (header.version < kOldestSessionFileVersion || header.version > kSessionFileVersion) {
    throw Error(ErrorCode::kBadFile, "the session file '" + path + "' has format version " +
                                         std::to_string(header.version) + ", but this winnow reads " +
                                         std::to_string(kOldestSessionFileVersion) + " to " +
                                         std::to_string(kSessionFileVersion) + ": prefill the prompt again");
  }
  if (header.body_bytes != static_cast<std::uint64_t>(info.st_size) - sizeof(header)) {
    throw Error(ErrorCode::kBadFile,
                "the session file '" + path + "' is truncated or damaged: prefill the prompt again");
  }
  version_ = header.version;
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
