// Readers of the files, pipes and devices that a user names. None of them is read without a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace winnow {

// A kind of input and the most bytes that one such input may have; docs/reference.md has the table. A prompt is bounded
// by the context instead.
struct InputKind {
  const char* name;  // for messages
  std::size_t most_bytes;
};

namespace input {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

inline constexpr InputKind kText{"a text", 64 * kMiB};
inline constexpr InputKind kDataset{"a data set in one piece", 256 * kMiB};
inline constexpr InputKind kSampleLine{"a line of samples", 64 * kMiB};
inline constexpr InputKind kQuestions{"a file of questions", 16 * kMiB};
inline constexpr InputKind kProfile{"a profile", 16 * kMiB};
inline constexpr InputKind kHeadFile{"a file of head importances", 16 * kMiB};
inline constexpr InputKind kCalibration{"an unfinished calibration", 64 * kMiB};
inline constexpr InputKind kGrammar{"a grammar", kMiB};
inline constexpr InputKind kChatTemplate{"a chat template", kMiB};
inline constexpr InputKind kKeys{"a file of keys", kMiB};
inline constexpr InputKind kHistory{"a history", kMiB};
inline constexpr InputKind kRun{"the configuration of a run", 64 * kMiB};
inline constexpr InputKind kRunLine{"a line of a run", 256 * kMiB};

}  // namespace input

// An input that is read in order, and only as far as the caller asks.
class InputStream {
 public:
  // Opens the path; "-" is the standard input. Throws Error(kIo), also for a directory.
  explicit InputStream(const std::string& path);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  // Appends to `text` until it has n_bytes bytes or the stream has ended.
  void read(std::size_t n_bytes, std::string& text);
  // Returns whether a read has met the end.
  bool ended() const { return ended_; }
  // Returns the bytes of a regular file, or nullopt if they are not known (a pipe, a device, a file of /proc).
  std::optional<std::uint64_t> size() const;
  // Returns "'path'" or "the standard input".
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int descriptor_;
  bool ended_ = false;
};

// Returns the whole input. Throws Error(kIo), and Error(kBadFile) if it has more bytes than the kind may have; it reads
// no further than that.
std::string read_input(const std::string& path, const InputKind& kind);

// A reader of the lines of a file, one at a time, each of at most the kind's bytes.
class InputLines {
 public:
  InputLines(const std::string& path, const InputKind& line) : stream_(path), line_(line) {}

  // Returns the next line without its newline, or nullopt at the end. Throws Error(kIo), and Error(kBadFile) for a
  // longer line.
  std::optional<std::string> next();
  // Returns whether the last line had its newline.
  bool had_newline() const { return had_newline_; }

 private:
  InputStream stream_;
  InputKind line_;
  std::string buffer_;
  std::size_t begin_ = 0;  // first byte that has not been returned
  int number_ = 0;
  bool had_newline_ = false;
};

}  // namespace winnow
