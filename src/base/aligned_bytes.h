// Scratch memory for the kernels: 64-byte aligned, uninitialised, owned.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "base/round_up.h"

namespace winnow {

class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t n_bytes)
      : size_(round_up(n_bytes, 64)), data_(size_ == 0 ? nullptr : std::aligned_alloc(64, size_)) {
    if (size_ != 0 && data_ == nullptr) throw std::bad_alloc();
  }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() { return {static_cast<std::byte*>(data_.get()), size_}; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::size_t size_;
  std::unique_ptr<void, Free> data_;
};

}  // namespace winnow
