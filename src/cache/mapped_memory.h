// A block of anonymous memory taken straight from the operating system, so that giving it back really lowers the
// process's resident size (memory from malloc may stay with the process after free).
//
// Not thread-safe.
#pragma once

#include <cstddef>

namespace winnow {

// The operating system's page, usually 4,096 bytes: the grain in which memory becomes resident and is given back.
std::size_t os_page_bytes();

class MappedMemory {
 public:
  MappedMemory() = default;
  // Zeroed and aligned to the operating system's page. Bytes become resident when they are first written.
  // Throws Error(kOutOfMemory).
  explicit MappedMemory(std::size_t bytes);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  // Gives the range back to the operating system; it stays mapped and reads as zeros until it is written again. Offset
  // and size are whole pages of the operating system.
  void give_back(std::size_t offset, std::size_t bytes) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace winnow
