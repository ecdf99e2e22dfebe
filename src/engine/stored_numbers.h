// Numbers, arrays and texts as bytes in this machine's byte order, and a reader that trusts none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "winnow/error.h"

namespace winnow {

template <class T>
void put(std::ostream& out, const T& value) {
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
void put_array(std::ostream& out, std::span<const T> values) {
  put(out, static_cast<std::uint64_t>(values.size()));
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

inline void put_text(std::ostream& out, std::string_view text) { put_array(out, std::span<const char>(text)); }

// Reads what put(), put_array() and put_text() have written, and compares every size with what is left before it takes
// memory. Unsound data throws Error(kBadFile).
class NumberReader {
 public:
  // Reads at most n_bytes bytes. `message` is that of its errors.
  NumberReader(std::istream& in, std::size_t n_bytes, std::string message)
      : in_(in), left_(n_bytes), message_(std::move(message)) {}

  template <class T>
  T get() {
    T value{};
    read(&value, 1);
    return value;
  }

  template <class T>
  T get_in(T min, T max) {
    const T value = get<T>();
    require(value >= min && value <= max);
    return value;
  }

  template <class T>
  std::vector<T> get_array(std::size_t most) {
    const auto n = get<std::uint64_t>();
    require(n <= most && n <= left_ / sizeof(T));
    std::vector<T> values(static_cast<std::size_t>(n));
    read(values.data(), values.size());
    return values;
  }

  // Reads a text of one line, of at most `most` bytes.
  std::string get_text(std::size_t most = std::size_t{1} << 20) {
    const auto chars = get_array<char>(most);
    for (const char c : chars) require(static_cast<unsigned char>(c) >= ' ');
    return {chars.begin(), chars.end()};
  }

  std::size_t left() const { return left_; }

  void require(bool is_sound) const {
    if (!is_sound) throw Error(ErrorCode::kBadFile, message_);
  }

 private:
  template <class T>
  void read(T* values, std::size_t n) {
    require(n <= left_ / sizeof(T));
    left_ -= n * sizeof(T);
    in_.read(reinterpret_cast<char*>(values), static_cast<std::streamsize>(n * sizeof(T)));
    require(static_cast<bool>(in_));
  }

  std::istream& in_;
  std::size_t left_;
  const std::string message_;
};

}  // namespace winnow
