// A block of an EntryMemory, freed with the object.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "cache/entry_memory.h"

namespace winnow {

class MemoryBlock {
 public:
  MemoryBlock() = default;
  // Throws Error(kOutOfMemory).
  MemoryBlock(std::shared_ptr<EntryMemory> memory, std::size_t bytes)
      : memory_(std::move(memory)), data_(memory_->allocate(bytes)), bytes_(bytes) {}
  MemoryBlock(MemoryBlock&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryBlock& operator=(MemoryBlock other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryBlock() {
    if (data_ != nullptr) memory_->free(data_, bytes_);
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // See EntryMemory::give_back.
  void give_back(std::size_t offset, std::size_t bytes) noexcept { memory_->give_back(data_ + offset, bytes); }

 private:
  std::shared_ptr<EntryMemory> memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace winnow
