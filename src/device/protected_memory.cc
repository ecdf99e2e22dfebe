#include "device/protected_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/round_up.h"
#include "device/host_fault.h"
#include "winnow/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#endif

namespace winnow::device {
namespace {

// Protection changes with every call, which is fast for huge pages.
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Unused bytes after every block, which AddressSanitizer guards.
constexpr std::size_t kGap = 256;

// NaN in f32, f16 and bf16.
constexpr int kUnwritten = 0xFF;

std::byte* map(std::size_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::kOutOfMemory, "the operating system refuses " + std::to_string(bytes) +
                                             " bytes of addresses for the test device: raise the limit (ulimit -v)");
  }
  return static_cast<std::byte*>(address);
}

std::byte* align_to_huge_page(std::byte* address) {
  return address + (kHugePage - reinterpret_cast<std::uintptr_t>(address) % kHugePage) % kHugePage;
}

}  // namespace

ProtectedMemory::ProtectedMemory(std::size_t bytes)
    : mapping_(map(round_up(bytes, kHugePage) + kHugePage)),
      mapping_bytes_(round_up(bytes, kHugePage) + kHugePage),
      begin_(align_to_huge_page(mapping_)),
      blocks_(begin_, bytes / BlockAllocator::kAlignment * BlockAllocator::kAlignment, kGap) {
  madvise(begin_, round_up(bytes, kHugePage), MADV_HUGEPAGE);
}

ProtectedMemory::~ProtectedMemory() {
  ASAN_UNPOISON_MEMORY_REGION(begin_, used_bytes_);
  munmap(mapping_, mapping_bytes_);
}

void ProtectedMemory::protect(std::byte* from, std::size_t bytes, bool is_open) noexcept {
  if (bytes == 0) return;
  if (mprotect(from, bytes, is_open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0) return;
  std::perror("the test device's memory cannot be protected");
  std::abort();
}

void ProtectedMemory::open() {
  const std::lock_guard lock(mutex_);
  if (n_open_++ == 0) protect(begin_, used_bytes_, true);
}

void ProtectedMemory::close() noexcept {
  const std::lock_guard lock(mutex_);
  if (--n_open_ == 0) protect(begin_, used_bytes_, false);
}

std::size_t ProtectedMemory::bytes_free() const {
  const std::lock_guard lock(mutex_);
  return blocks_.bytes() - blocks_.bytes_in_use();
}

std::byte* ProtectedMemory::allocate(std::size_t bytes) {
  HostFault::before_allocation();
  std::byte* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    block = blocks_.allocate(bytes);
    if (block == nullptr) {
      throw Error(ErrorCode::kOutOfMemory, "the device host has no room for " + std::to_string(bytes) +
                                               " bytes: " + std::to_string(blocks_.bytes() - blocks_.bytes_in_use()) +
                                               " of " + std::to_string(blocks_.bytes()) + " are free");
    }
    const std::size_t used = round_up(static_cast<std::size_t>(block - begin_) + bytes + kGap, kHugePage);
    if (used > used_bytes_) {
      if (n_open_ > 0) protect(begin_ + used_bytes_, used - used_bytes_, true);
      ASAN_POISON_MEMORY_REGION(begin_ + used_bytes_, used - used_bytes_);
      used_bytes_ = used;
    }
  }
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  const Opened opened(*this);
  std::memset(block, kUnwritten, bytes);
  return block;
}

void ProtectedMemory::free(std::byte* block, std::size_t bytes) noexcept {
  give_back(block, bytes);
  const std::lock_guard lock(mutex_);
  ASAN_POISON_MEMORY_REGION(block, bytes);
  blocks_.free(block);
}

void ProtectedMemory::give_back(std::byte* from, std::size_t bytes) noexcept {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::byte* const first = from + (page - reinterpret_cast<std::uintptr_t>(from) % page) % page;
  std::byte* const end = from + bytes - reinterpret_cast<std::uintptr_t>(from + bytes) % page;
  if (first < end) madvise(first, static_cast<std::size_t>(end - first), MADV_DONTNEED);
}

void ProtectedMemory::copy(std::span<const ByteCopy> copies) noexcept {
  if (HostFault::is_lost()) return;
  std::size_t n = 0;
  for (const ByteCopy& copy : copies) n += copy.bytes;
  std::vector<std::byte> staged(n);  // a test that runs out of memory here is aborted
  const Opened opened(*this);
  n = 0;
  for (const ByteCopy& copy : copies) {
    std::memcpy(staged.data() + n, copy.from, copy.bytes);
    n += copy.bytes;
  }
  n = 0;
  for (const ByteCopy& copy : copies) {
    std::memcpy(copy.to, staged.data() + n, copy.bytes);
    n += copy.bytes;
  }
}

void ProtectedMemory::read(void* to, const std::byte* from, std::size_t bytes) {
  HostFault::before_work();
  const Opened opened(*this);
  std::memcpy(to, from, bytes);
}

void ProtectedMemory::write(std::byte* to, const void* from, std::size_t bytes) {
  HostFault::before_work();
  const Opened opened(*this);
  std::memcpy(to, from, bytes);
}

}  // namespace winnow::device
