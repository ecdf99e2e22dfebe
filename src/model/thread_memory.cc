#include "model/thread_memory.h"

#include <hwy/aligned_allocator.h>

#include <new>

namespace winnow {

std::byte* thread_memory(std::size_t bytes) {
  thread_local hwy::AlignedFreeUniquePtr<std::byte[]> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory.reset();  // first, so that the two never exist together
    memory = hwy::AllocateAligned<std::byte>(bytes);
    size = memory ? bytes : 0;
    if (!memory) throw std::bad_alloc();
  }
  return memory.get();
}

}  // namespace winnow
