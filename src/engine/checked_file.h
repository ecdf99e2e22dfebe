// A file with a header that says how long its body is and what checksum it has. Bodies are streamed: neither writing
// nor reading holds more of one in memory than a buffer.
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

// The one that is written.
inline constexpr std::uint32_t kSessionFileVersion = 7;
// Files since this version are read, too: before version 7 no head had an origin of its keys.
inline constexpr std::uint32_t kOldestSessionFileVersion = 6;

// An AtomicFile with that header: whatever happens before commit() leaves the file of that name, if any, as it was. All
// that fails throws Error(kIo). Only the user may read the file (mode 0600): it holds texts.
class CheckedFileWriter {
 public:
  explicit CheckedFileWriter(const std::string& path);
  ~CheckedFileWriter();  // without commit(): removes what was written
  CheckedFileWriter(const CheckedFileWriter&) = delete;
  CheckedFileWriter& operator=(const CheckedFileWriter&) = delete;

  std::ostream& body();
  // Writes the header, waits for the disk, and gives the file its name.
  void commit();

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
  std::ostream body_;
};

// Opens a file and compares its length and its checksum with its header before anything is taken out of it. Throws
// Error: kNotFound, kIo, kBadFile.
class CheckedFileReader {
 public:
  explicit CheckedFileReader(const std::string& path);

  std::istream& body() { return in_; }  // at its first byte
  std::size_t body_bytes() const { return body_bytes_; }

 private:
  std::ifstream in_;
  std::size_t body_bytes_ = 0;
};

}  // namespace winnow
