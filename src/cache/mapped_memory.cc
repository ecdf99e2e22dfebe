#include "cache/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>

#include "winnow/error.h"

namespace winnow {

std::size_t os_page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

MappedMemory::MappedMemory(std::size_t bytes) : bytes_(bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfMemory, "the operating system refuses " + std::to_string(bytes) +
                                             " bytes of memory: free some, or lower the KV budget or the context");
  }
  data_ = static_cast<std::byte*>(address);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::byte* MappedMemory::detach() noexcept {
  bytes_ = 0;
  return std::exchange(data_, nullptr);
}

MappedMemory MappedMemory::adopt(std::byte* block, std::size_t bytes) noexcept {
  MappedMemory memory;
  memory.data_ = block;
  memory.bytes_ = bytes;
  return memory;
}

void MappedMemory::give_back(std::byte* from, std::size_t bytes) noexcept {
  assert(reinterpret_cast<std::uintptr_t>(from) % os_page_bytes() == 0 && bytes % os_page_bytes() == 0);
  madvise(from, bytes, MADV_DONTNEED);
}

}  // namespace winnow
