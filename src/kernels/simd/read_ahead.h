// Prefetches memory that will be read next.
#pragma once

#include <hwy/base.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace winnow::kernels {

// Returns whether prefetches go to the first-level cache. Many lines at once fill the few buffers that a core's first
// level has for lines in flight and delay every other read, so they go to the second level: on Zen 4 a product of one
// row of q4_K then takes 0.64 of the time, decoding over f16 entries 0.63 (one thread, head size 64). Zen 5 has more of
// these buffers, and reads a fifth more from memory with prefetches to the first level.
inline bool fetches_to_first_level() {
#if HWY_ARCH_X86
  static const bool is_zen_5 = [] {
    constexpr unsigned kZen5 = 0x1A;
    __builtin_cpu_init();
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__builtin_cpu_is("amd") == 0 || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    const unsigned family = eax >> 8 & 0xF, further = eax >> 20 & 0xFF;
    return family + further >= kZen5;
  }();
  return is_zen_5;
#else
  return false;
#endif
}

HWY_INLINE void fetch_line(const std::byte* line, bool to_first_level) {
  if (to_first_level) {
    __builtin_prefetch(line, 0, 3);
  } else {
    __builtin_prefetch(line, 0, 2);
  }
}

// A queue of memory ranges in the order in which they will be read.
class ReadOrder {
 public:
  struct Range {
    const std::byte *data, *end;
  };

  // Adds a range at the end; it is left out if there is no room.
  void add(const std::byte* data, std::size_t bytes) {
    if (n_ == kMost) {
      std::copy(ranges_ + first_, ranges_ + n_, ranges_);
      n_ -= std::exchange(first_, 0);
    }
    if (n_ < kMost) ranges_[n_++] = {data, data + bytes};
  }
  bool is_empty() const { return first_ == n_; }
  Range take() { return ranges_[first_++]; }

 private:
  static constexpr int kMost = 24;

  Range ranges_[kMost];
  int first_ = 0, n_ = 0;
};

// Prefetches memory some KiB before it is read, a few lines at a time, while earlier memory is processed: pages are too
// short for the processor to detect a stream in them.
class Ahead {
 public:
  explicit Ahead(ReadOrder& order, bool to_first_level = fetches_to_first_level())
      : order_(&order), to_first_level_(to_first_level) {}

  // Spreads the prefetch of `bytes` over n_steps calls of fetch(): prefetching as many bytes as are read meanwhile
  // keeps the distance.
  void spread(std::size_t bytes, std::int32_t n_steps) {
    left_ = static_cast<std::ptrdiff_t>(bytes);
    step_ = static_cast<std::ptrdiff_t>(bytes / static_cast<std::size_t>(64 * n_steps) + 1) * 64;
    begin_part();
  }

  HWY_INLINE void fetch() {
    const std::byte* line = next_;
    const std::byte* until = line + step_;
    while (HWY_UNLIKELY(until > last_)) {
      for (; line < last_; line += 64) fetch_line(line, to_first_level_);
      next_ = line;
      if (left_ <= 0 || order_->is_empty()) return;
      const std::ptrdiff_t rest = until - line;
      const ReadOrder::Range range = order_->take();
      next_ = line = range.data;
      end_ = range.end;
      begin_part();
      until = line + rest;
    }
    for (; line < until; line += 64) fetch_line(line, to_first_level_);
    next_ = line;
  }

 private:
  // Sets the part of the range that belongs to the bytes left.
  HWY_INLINE void begin_part() {
    const std::ptrdiff_t part = std::min(left_, end_ - next_);
    last_ = next_ + part;
    left_ -= part;
  }

  ReadOrder* order_;
  const std::byte *next_ = nullptr, *last_ = nullptr, *end_ = nullptr;  // within the range that is being prefetched
  std::ptrdiff_t step_ = 0, left_ = 0;                                  // bytes per step, and bytes left after last_
  bool to_first_level_;
};

}  // namespace winnow::kernels
