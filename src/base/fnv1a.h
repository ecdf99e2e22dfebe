// The 64-bit FNV-1a hash. It detects a changed byte, and gives names to files and keys to texts. It is not a signature:
// another text with the same hash is easily made.
// Source: http://www.isthe.com/chongo/tech/comp/fnv
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

class Fnv1a {
 public:
  // A seed other than 0 changes the hash of the same bytes.
  explicit Fnv1a(std::uint64_t seed = 0) : state_(0xcbf29ce484222325U ^ seed) {}

  Fnv1a& add(std::string_view bytes) {
    for (const char c : bytes) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return *this;
  }
  // Adds `n` bytes as they lie in memory: the hash of numbers is that of a little-endian machine.
  Fnv1a& add(const void* data, std::size_t n) { return add(std::string_view(static_cast<const char*>(data), n)); }

  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_;
};

inline std::uint64_t fnv1a(std::string_view bytes) { return Fnv1a().add(bytes).value(); }

// Returns 16 hexadecimal digits.
std::string hex_text(std::uint64_t value);

}  // namespace winnow
