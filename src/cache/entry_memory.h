// An EntryMemory holds the rows of entries, in this process's memory or in a device's. Addresses can be computed in
// either, but the processor may follow them only if is_host().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace winnow {

// A copy of bytes within one memory.
struct ByteCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};

// Adds the copies that put rows of row_bytes bytes, given by their index in `from`, to one piece at `to`: one copy for
// every run of rows that follow each other.
inline void add_gathered_rows(std::byte* to, const std::byte* from, std::size_t row_bytes,
                              std::span<const std::int32_t> rows, std::vector<ByteCopy>& copies) {
  for (std::size_t i = 0, end = 0; i < rows.size(); i = end) {
    for (++end; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    copies.push_back({.to = to + i * row_bytes,
                      .from = from + static_cast<std::size_t>(rows[i]) * row_bytes,
                      .bytes = (end - i) * row_bytes});
  }
}

// Thread-safe.
class EntryMemory {
 public:
  virtual ~EntryMemory() = default;

  virtual bool is_host() const = 0;
  // Returns a new block, 256-byte aligned. Throws Error(kOutOfMemory).
  virtual std::byte* allocate(std::size_t bytes) = 0;
  // Frees a block once the work that was queued before no longer uses it.
  virtual void free(std::byte* block, std::size_t bytes) noexcept = 0;
  // Gives the whole pages of the operating system inside a block back to it, if the memory can do that.
  virtual void give_back(std::byte* from, std::size_t bytes) noexcept = 0;

  // Carries out the copies as if all were read before any is written; targets must not overlap. Work that is queued
  // later on the device sees the result. An error of the device is thrown by the next call that waits for it.
  virtual void copy(std::span<const ByteCopy> copies) noexcept = 0;
  // Copies from this memory to the process's, after all work that was queued before.
  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
  // Copies from the process's memory, which may change once this returns.
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
};

}  // namespace winnow
