// An allocator of blocks in a range of addresses. The range need not be memory of this process: the allocator neither
// reads nor writes it.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <map>

namespace winnow::device {

class BlockAllocator {
 public:
  static constexpr std::size_t kAlignment = 256;

  // Manages a range whose begin is aligned. gap: unused bytes after every block
  BlockAllocator(std::byte* begin, std::size_t bytes, std::size_t gap = 0);

  // Returns the lowest free address for a block, aligned; null if there is no room. Throws std::bad_alloc.
  std::byte* allocate(std::size_t bytes);
  // Frees a block that allocate() returned.
  void free(std::byte* block) noexcept;

  bool holds(const std::byte* address) const { return begin_ <= address && address < begin_ + bytes_; }
  std::size_t bytes_in_use() const { return in_use_; }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Block {
    std::size_t bytes;
    bool is_free;
  };

  std::byte* begin_;
  std::size_t bytes_;
  std::size_t gap_;
  std::size_t in_use_ = 0;
  std::map<std::byte*, Block> blocks_;  // side by side; no two free ones are neighbours
};

}  // namespace winnow::device
