#include "failing_allocations.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>

namespace {

std::atomic<std::int64_t> n_left{0};  // allocations until the one that fails, which is counted; 0: none will fail
std::atomic<bool> has_failed{false};

// Returns true if the caller is in a library that cannot handle failed allocations.
bool is_excepted(void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const std::string_view file = info.dli_fname;
  return file.find("libggml") != file.npos || file.find("libllama") != file.npos || file.find("libdnnl") != file.npos;
}

void* allocate(std::size_t size, std::size_t alignment, void* caller) {
  if (n_left.load(std::memory_order_relaxed) > 0 && !is_excepted(caller) && n_left.fetch_sub(1) == 1) {
    has_failed = true;
    throw std::bad_alloc();
  }
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(size > 0 ? size : 1)
                                                        : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t), __builtin_return_address(0)); }
void* operator new[](std::size_t size) {
  return allocate(size, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace winnow::test {

FailingAllocation::FailingAllocation(std::int64_t n) {
  has_failed = false;
  n_left = n;
}

FailingAllocation::~FailingAllocation() { n_left = 0; }

bool FailingAllocation::has_happened() const { return has_failed; }

}  // namespace winnow::test
