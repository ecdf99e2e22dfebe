// HostDevice's memory, which the processor can access only while it is open.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include "cache/entry_memory.h"
#include "device/block_allocator.h"

namespace winnow::device {

// Thread-safe.
class ProtectedMemory final : public EntryMemory {
 public:
  // Throws Error(kOutOfMemory).
  explicit ProtectedMemory(std::size_t bytes);
  ProtectedMemory(const ProtectedMemory&) = delete;
  ProtectedMemory& operator=(const ProtectedMemory&) = delete;
  ~ProtectedMemory() override;

  // Opens the memory to the processor for the lifetime of the object.
  class Opened {
   public:
    explicit Opened(ProtectedMemory& memory) : memory_(memory) { memory_.open(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened() { memory_.close(); }

   private:
    ProtectedMemory& memory_;
  };

  std::size_t bytes_free() const;

  bool is_host() const override { return false; }
  std::byte* allocate(std::size_t bytes) override;
  void free(std::byte* block, std::size_t bytes) noexcept override;
  void give_back(std::byte* from, std::size_t bytes) noexcept override;
  void copy(std::span<const ByteCopy> copies) noexcept override;
  void read(void* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const void* from, std::size_t bytes) override;

 private:
  void open();
  void close() noexcept;
  void protect(std::byte* from, std::size_t bytes, bool is_open) noexcept;

  mutable std::mutex mutex_;
  std::byte* mapping_;
  std::size_t mapping_bytes_;
  std::byte* begin_;            // of the blocks, aligned to a huge page
  std::size_t used_bytes_ = 0;  // from begin_: the most that was ever allocated, in whole huge pages
  int n_open_ = 0;
  BlockAllocator blocks_;
};

}  // namespace winnow::device
