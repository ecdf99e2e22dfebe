#include "cache/host_memory.h"

#include <cstring>
#include <vector>

#include "cache/mapped_memory.h"

namespace winnow {
const std::shared_ptr<EntryMemory>& HostMemory::shared() {
  static const std::shared_ptr<EntryMemory> memory = std::make_shared<HostMemory>();
  return memory;
}

std::byte* HostMemory::allocate(std::size_t bytes) { return MappedMemory(bytes).detach(); }

void HostMemory::free(std::byte* block, std::size_t bytes) noexcept { MappedMemory::adopt(block, bytes); }

void HostMemory::give_back(std::byte* from, std::size_t bytes) noexcept { MappedMemory::give_back(from, bytes); }

void HostMemory::copy(std::span<const ByteCopy> copies) noexcept {
  if (copies.size() == 1) {
    std::memmove(copies[0].to, copies[0].from, copies[0].bytes);
    return;
  }
  std::vector<std::byte> staged;
  for (const ByteCopy& each : copies) staged.insert(staged.end(), each.from, each.from + each.bytes);
  const std::byte* next = staged.data();
  for (const ByteCopy& each : copies) {
    std::memcpy(each.to, next, each.bytes);
    next += each.bytes;
  }
}

void HostMemory::read(void* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

void HostMemory::write(std::byte* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace winnow
