// Streams of bytes in parts, and parts in pieces: what a file holds of each layer, on its way to and from the rank that
// holds the layer. A part ends with a piece of no bytes.
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

// What the sink throws passes through the stream.
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

// What the source throws passes through the stream, which ends where the part does.
class PieceReader : private std::streambuf {
 public:
  explicit PieceReader(PieceSource source);

  std::istream& stream() { return stream_; }
  // Takes what is left of the part; the stream goes on with the next.
  void end_part();

 private:
  int_type underflow() override;
  bool take();  // false: the part is over

  PieceSource source_;
  std::vector<char> piece_;
  bool is_over_ = false;
  std::istream stream_;
};

}  // namespace winnow
