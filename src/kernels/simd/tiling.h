// The sizes of the register and cache tiles that the matrix-like kernels share, and the scratch memory that holds them.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace winnow::kernels {

// The number of query rows (one query head of one row each) that one register tile holds. With 4 vectors of keys it
// fills 24 of AVX-512's 32 registers with sums, with 2 vectors 12 of AVX2's 16.
inline constexpr int kTileRows = 6;

// The number of entries that are converted to float32 and packed at a time; a multiple of every instruction set's
// panel.
inline constexpr int kKeyBlock = 128;

// The number of entries that causal attention processes at a time: their values and the weights of a panel of query
// rows fit in the first-level cache together.
inline constexpr int kCausalKeyBlock = 48;

// The number of entries whose scores and weights a decoding step processes together.
inline constexpr int kEntryBlock = 128;

// Returns the number of scales that a row has room for: one for each 32 numbers.
constexpr std::size_t scale_blocks(int head_dim) { return static_cast<std::size_t>((head_dim + 31) / 32); }

// Returns the floats that the scales of a block of rows take.
constexpr std::size_t scale_floats(int head_dim) {
  return scale_blocks(head_dim) * static_cast<std::size_t>(kEntryBlock);
}

inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr double kLn2 = 0.693147180559945309;

constexpr std::int32_t round_up(std::int32_t n, std::int32_t unit) { return (n + unit - 1) / unit * unit; }

// Hands out 64-byte-aligned pieces of a caller's scratch memory.
class Scratch {
 public:
  explicit Scratch(std::span<std::byte> memory) : memory_(memory) {}

  template <class T>
  static constexpr std::size_t bytes(std::size_t n) {
    return (n * sizeof(T) + 63) / 64 * 64;
  }

  template <class T>
  T* take(std::size_t n) {
    assert(used_ + bytes<T>(n) <= memory_.size());
    T* piece = reinterpret_cast<T*>(memory_.data() + used_);
    used_ += bytes<T>(n);
    return piece;
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace winnow::kernels
