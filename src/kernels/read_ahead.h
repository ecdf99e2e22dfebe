// Fetching what will be read next.
#pragma once

#include <hwy/base.h>

#include <cstddef>
#include <cstdint>

namespace winnow::kernels {

// Whether what is fetched ahead goes to the first-level cache. Many lines at once would fill the few buffers that an
// Intel Xeon has there for lines on their way, so they go to the second level; Zen 5 reads a fifth more from memory in
// the first level (f16, head size 64).
inline bool fetches_to_first_level() {
#if HWY_ARCH_X86
  static const bool is_amd = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
  }();
  return is_amd;
#else
  return false;
#endif
}

// Rows that will be needed next, fetched a few lines at a time while others are worked on: pages are too short for the
// processor to see a stream in them.
class Ahead {
 public:
  Ahead(const std::byte* data, std::size_t bytes)
      : next_(data), end_(data + bytes), to_first_level_(fetches_to_first_level()) {}

  // Spreads what is left over n_steps calls of fetch.
  void spread(std::int32_t n_steps) {
    const auto left = static_cast<std::size_t>(end_ - next_);
    lines_ = (left / 64 + static_cast<std::size_t>(n_steps)) / static_cast<std::size_t>(n_steps);
  }

  HWY_INLINE void fetch() {
    for (std::size_t line = 0; line < lines_ && next_ < end_; ++line, next_ += 64) {
      if (to_first_level_) {
        __builtin_prefetch(next_, 0, 3);
      } else {
        __builtin_prefetch(next_, 0, 2);
      }
    }
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
  bool to_first_level_;
  std::size_t lines_ = 0;  // per step
};

}  // namespace winnow::kernels
