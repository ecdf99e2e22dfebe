// Entries in this process's own memory.
#pragma once

#include <memory>

#include "cache/entry_memory.h"

namespace winnow {

// An EntryMemory that takes blocks straight from the operating system (MappedMemory): zeroed, and resident once they
// are written to.
class HostMemory final : public EntryMemory {
 public:
  // Returns the process's only instance.
  static const std::shared_ptr<EntryMemory>& shared();

  bool is_host() const override { return true; }
  std::byte* allocate(std::size_t bytes) override;
  void free(std::byte* block, std::size_t bytes) noexcept override;
  void give_back(std::byte* from, std::size_t bytes) noexcept override;
  // Allocates a buffer for all bytes if there are several copies. PageStore moves the rows of host pages itself.
  void copy(std::span<const ByteCopy> copies) noexcept override;
  void read(void* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, const void* from, std::size_t bytes) override;
};

}  // namespace winnow
