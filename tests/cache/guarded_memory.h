// An entry memory like a device's: its addresses can be computed with, but an access through one faults.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cache/entry_memory.h"
#include "cache/host_memory.h"
#include "winnow/error.h"

namespace winnow {

// Every block is mapped twice: without any access rights at the address that is handed out, and readable and writable
// for the memory itself. All blocks must have been freed at the end.
class GuardedMemory final : public EntryMemory {
 public:
  ~GuardedMemory() override {
    if (!blocks_.empty()) std::abort();
  }

  bool is_host() const override { return false; }

  std::byte* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (const int n = ++n_asked_; n >= first_refused_ && n <= last_refused_) {
      has_failed_ = true;
      throw Error(ErrorCode::kOutOfMemory, "the device has no " + std::to_string(bytes) + " bytes left");
    }
    const int file = memfd_create("guarded memory", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
    void* guarded = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    void* own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (guarded == MAP_FAILED || own == MAP_FAILED) std::abort();
    close(file);
    auto* block = static_cast<std::byte*>(guarded);
    try {
      blocks_[block] = {static_cast<std::byte*>(own), bytes};
    } catch (...) {
      munmap(own, bytes);
      munmap(guarded, bytes);
      throw;
    }
    return block;
  }

  void free(std::byte* block, std::size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(block);
    if (found == blocks_.end() || found->second.bytes != bytes) std::abort();
    munmap(found->second.own, bytes);
    munmap(block, bytes);
    blocks_.erase(found);
  }

  void give_back(std::byte* /*from*/, std::size_t /*bytes*/) noexcept override {}

  void copy(std::span<const ByteCopy> copies) noexcept override {
    const std::lock_guard lock(mutex_);
    ++n_calls_;
    std::size_t bytes = 0;
    for (const ByteCopy& each : copies) bytes += each.bytes;
    bytes_copied_ += bytes;
    auto* staged = static_cast<std::byte*>(std::malloc(bytes));
    std::byte* next = staged;
    for (const ByteCopy& each : copies) next = std::copy_n(own(each.from, each.bytes), each.bytes, next);
    next = staged;
    for (const ByteCopy& each : copies) {
      std::memcpy(own(each.to, each.bytes), next, each.bytes);
      next += each.bytes;
    }
    std::free(staged);
  }

  void read(void* to, const std::byte* from, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(to, own(from, bytes), bytes);
  }

  void write(std::byte* to, const void* from, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::memcpy(own(to, bytes), from, bytes);
  }

  // Refuses n_times allocations, beginning with the n-th from here on.
  void fail(int n, int n_times) {
    first_refused_ = n_asked_ + n;
    last_refused_ = first_refused_ + n_times - 1;
    has_failed_ = false;
  }
  bool has_failed() const { return has_failed_; }
  std::size_t n_blocks() const { return blocks_.size(); }
  int n_copy_calls() const { return n_calls_; }
  std::size_t bytes_copied() const { return bytes_copied_; }

 private:
  struct Block {
    std::byte* own;
    std::size_t bytes;
  };

  std::byte* own(const std::byte* address, std::size_t bytes) {
    auto block = blocks_.upper_bound(const_cast<std::byte*>(address));
    if (block == blocks_.begin()) std::abort();
    --block;
    const auto offset = static_cast<std::size_t>(address - block->first);
    if (offset + bytes > block->second.bytes) std::abort();
    return block->second.own + offset;
  }

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;
  int n_asked_ = 0, first_refused_ = 0, last_refused_ = 0;
  bool has_failed_ = false;
  int n_calls_ = 0;
  std::size_t bytes_copied_ = 0;
};

// The kind of memory that holds the rows of a test.
enum class TestMemory { kHost, kGuarded };

inline std::shared_ptr<EntryMemory> make_memory(TestMemory kind) {
  if (kind == TestMemory::kHost) return HostMemory::shared();
  return std::make_shared<GuardedMemory>();
}

inline std::string name_of(TestMemory kind) { return kind == TestMemory::kHost ? "host" : "guarded"; }

}  // namespace winnow
