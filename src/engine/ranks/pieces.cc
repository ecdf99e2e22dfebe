#include "engine/ranks/pieces.h"

#include <utility>

namespace winnow {

PieceWriter::PieceWriter(PieceSink sink) : sink_(std::move(sink)), stream_(this) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  stream_.exceptions(std::ios::badbit);
}

void PieceWriter::flush() {
  const std::span<const char> piece(pbase(), static_cast<std::size_t>(pptr() - pbase()));
  if (!piece.empty()) sink_(piece);
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

PieceWriter::int_type PieceWriter::overflow(int_type c) {
  flush();
  if (!traits_type::eq_int_type(c, traits_type::eof())) {
    *pptr() = traits_type::to_char_type(c);
    pbump(1);
  }
  return traits_type::not_eof(c);
}

void PieceWriter::end_part() {
  flush();
  sink_({});
}

PieceReader::PieceReader(PieceSource source) : source_(std::move(source)), stream_(this) {
  stream_.exceptions(std::ios::badbit);
}

bool PieceReader::take() {
  if (is_over_) return false;
  piece_ = source_();
  is_over_ = piece_.empty();
  setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
  return !is_over_;
}

PieceReader::int_type PieceReader::underflow() {
  return take() ? traits_type::to_int_type(*gptr()) : traits_type::eof();
}

void PieceReader::end_part() {
  while (take()) {
  }
  is_over_ = false;
  stream_.clear();
}

}  // namespace winnow
