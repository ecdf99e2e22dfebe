// Files with a header that holds the length and the checksum of the body. Bodies are streamed: neither writing nor
// reading holds more of one in memory than a buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <ostream>
#include <streambuf>
#include <string>

namespace winnow {

// The version that is written.
inline constexpr std::uint32_t kSessionFileVersion = 8;
// The oldest version that is read: before version 7 no head had an origin of its keys, before version 8 a file did not
// say which heads are raised, and named its model without the metadata.
inline constexpr std::uint32_t kOldestSessionFileVersion = 6;

// Writes an AtomicFile with that header: until commit() the file of that name, if any, stays as it was. Failures throw
// Error(kIo). Only the user may read the file (mode 0600), since it holds texts.
class CheckedFileWriter {
 public:
  explicit CheckedFileWriter(const std::string& path);
  ~CheckedFileWriter();  // removes what was written without commit()
  CheckedFileWriter(const CheckedFileWriter&) = delete;
  CheckedFileWriter& operator=(const CheckedFileWriter&) = delete;

  std::ostream& body();
  // Writes the header, waits until the disk has everything, and gives the file its name.
  void commit();

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
  std::ostream body_;
};

// Opens a file and checks its length and checksum against its header before anything is read from it. Throws Error:
// kNotFound, kIo, kBadFile.
class CheckedFileReader {
 public:
  explicit CheckedFileReader(const std::string& path);

  std::uint32_t version() const { return version_; }
  std::istream& body() { return in_; }  // at its first byte
  std::size_t body_bytes() const { return body_bytes_; }

 private:
  std::ifstream in_;
  std::uint32_t version_ = 0;
  std::size_t body_bytes_ = 0;
};

}  // namespace winnow
