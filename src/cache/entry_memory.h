// An EntryMemory holds the rows of entries: in this process's memory or in a device's. Addresses can be computed with
// whatever the memory is, but the processor may follow them only where is_host() says so.
#pragma once

#include <cstddef>
#include <span>

namespace winnow {

// Bytes on their way within one memory.
struct ByteCopy {
  std::byte* to;
  const std::byte* from;
  std::size_t bytes;
};

// Thread-safe.
class EntryMemory {
 public:
  virtual ~EntryMemory() = default;

  virtual bool is_host() const = 0;
  // Returns a block of its own, 256-byte aligned. Throws Error(kOutOfMemory).
  virtual std::byte* allocate(std::size_t bytes) = 0;
  // Frees a block once what was queued before is done with it.
  virtual void free(std::byte* block, std::size_t bytes) noexcept = 0;
  // Gives whole pages of the operating system inside a block back to it, where that can be done.
  virtual void give_back(std::byte* from, std::size_t bytes) noexcept = 0;

  // Carries out copies as if all were read before any is written; targets do not overlap. What is queued later on the
  // device sees the result. An error of the device shows where it is next waited for.
  virtual void copy(std::span<const ByteCopy> copies) noexcept = 0;
  // Copies from this memory to the process's, behind all that was queued before.
  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
  // Copies from the process's memory, which may change once this returns.
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
};

}  // namespace winnow
