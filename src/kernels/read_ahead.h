// Fetching what will be read next.
#pragma once

#include <hwy/base.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include <cstddef>
#include <cstdint>

namespace winnow::kernels {

// Whether what is fetched ahead goes to the first-level cache. Many lines at once fill the few buffers that a core has
// there for lines on their way and hold up every other read, so they go to the second level: on Zen 4 a product of one
// row of q4_K then takes 0.64 of the time, decoding over f16 entries 0.63 (one thread, head size 64). Zen 5 has more of
// them and reads a fifth more from memory in the first level.
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
      fetch_line(next_, to_first_level_);
    }
  }

 private:
  const std::byte* next_;
  const std::byte* end_;
  bool to_first_level_;
  std::size_t lines_ = 0;  // per step
};

}  // namespace winnow::kernels
