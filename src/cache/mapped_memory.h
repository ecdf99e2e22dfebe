// A block of anonymous memory taken straight from the operating system, so that giving it back really lowers the
// process's resident size (memory from malloc may stay with the process after free).
//
// Not thread-safe.
#pragma once

#include <cstddef>

namespace winnow {

// Returns the size of the operating system's page, usually 4,096 bytes: memory becomes resident and is given back in
// units of it.
std::size_t os_page_bytes();

class MappedMemory {
 public:
  MappedMemory() = default;
  // Maps a block, zeroed and aligned to the operating system's page. Bytes become resident when they are first written.
  // Throws Error(kOutOfMemory).
  explicit MappedMemory(std::size_t bytes);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Releases ownership of the block to the caller, who frees it by adopting it.
  std::byte* detach() noexcept;
  static MappedMemory adopt(std::byte* block, std::size_t bytes) noexcept;

  // Gives a part of a block back to the operating system; it stays mapped and reads as zeros until it is written again.
  // Address and size are multiples of the operating system's page of the operating system.
  static void give_back(std::byte* from, std::size_t bytes) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace winnow
