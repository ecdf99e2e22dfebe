// Byte streams in parts, each sent in pieces: the data of each layer in a session file, on its way to or from the rank
// that holds the layer. An empty piece ends a part.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <ostream>
#include <span>
#include <streambuf>
#include <vector>

namespace winnow {

inline constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

using PieceSink = std::function<void(std::span<const char> piece)>;
using PieceSource = std::function<std::vector<char>()>;

// An output stream that sends pieces to a sink. The sink's exceptions pass through the stream.
class PieceWriter : private std::streambuf {
 public:
  explicit PieceWriter(PieceSink sink);

  std::ostream& stream() { return stream_; }
  void end_part();

 private:
  int_type overflow(int_type c) override;
  void flush();

  PieceSink sink_;
  std::vector<char> buffer_ = std::vector<char>(kPieceBytes);
  std::ostream stream_;
};

// An input stream of one part at a time from a source. The source's exceptions pass through the stream.
class PieceReader : private std::streambuf {
 public:
  explicit PieceReader(PieceSource source);

  std::istream& stream() { return stream_; }
  // Skips the rest of the part; the stream goes on with the next.
  void end_part();

 private:
  int_type underflow() override;
  bool take();  // takes the next piece; false: the part is over

  PieceSource source_;
  std::vector<char> piece_;
  bool is_over_ = false;
  std::istream stream_;
};

}  // namespace winnow
