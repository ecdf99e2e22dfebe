// Many copies within the device's memory at once: of rows, runs of rows or whole pages. No target may overlap a source:
// callers that move entries within their pages copy them to a separate block first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/entry_memory.h"
#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace copies {

inline constexpr int kThreads = 128;
inline constexpr unsigned kParts = 4;  // blocks that share a copy
inline constexpr unsigned kMostBlocks = 1U << 16U;

// Copies `bytes` bytes as numbers of type T, by the threads first, first + step, ...
template <class T>
WINNOW_DEVICE void copy_as(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t first,
                           std::size_t step) {
  auto* to_numbers = reinterpret_cast<T*>(to);
  const auto* from_numbers = reinterpret_cast<const T*>(from);
  WINNOW_NO_UNROLL
  for (std::size_t i = first; i < bytes / sizeof(T); i += step) to_numbers[i] = from_numbers[i];
}

WINNOW_DEVICE void copy_words(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t first,
                              std::size_t step) {
  constexpr int kAtOnce = 4;
  const std::size_t n = bytes / 16;
  std::size_t i = first;
  WINNOW_NO_UNROLL
  for (; i + (kAtOnce - 1) * step < n; i += kAtOnce * step) {
    simt::Words4 words[kAtOnce];
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) words[x] = simt::load_16(from + 16 * (i + static_cast<std::size_t>(x) * step));
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) simt::store_16(to + 16 * (i + static_cast<std::size_t>(x) * step), words[x]);
  }
  WINNOW_NO_UNROLL
  for (; i < n; i += step) simt::store_16(to + 16 * i, simt::load_16(from + 16 * i));
}

WINNOW_KERNEL void WINNOW_THREADS(kThreads, 8) copy(Copies plan) {
  const auto* list = static_cast<const ByteCopy*>(plan.list);
  const auto first = static_cast<std::size_t>(simt::block_y() * kThreads + simt::thread());
  const auto step = static_cast<std::size_t>(simt::grid_y() * kThreads);
  for (int i = simt::block_x(); i < plan.n; i += simt::grid_x()) {
    const ByteCopy copy = list[i];
    const std::size_t places =
        reinterpret_cast<std::uintptr_t>(copy.to) | reinterpret_cast<std::uintptr_t>(copy.from) | copy.bytes;
    if (places % 16 == 0) {
      copy_words(copy.to, copy.from, copy.bytes, first, step);
    } else if (places % 4 == 0) {
      copy_as<std::uint32_t>(copy.to, copy.from, copy.bytes, first, step);
    } else {
      copy_as<std::uint8_t>(copy.to, copy.from, copy.bytes, first, step);
    }
  }
}

}  // namespace copies

inline void queue_copies(simt::Queue& queue, const Copies& plan) {
  const auto n = static_cast<unsigned>(plan.n);
  simt::launch(queue, {n < copies::kMostBlocks ? n : copies::kMostBlocks, copies::kParts}, copies::kThreads, 0,
               copies::copy, plan);
}

}  // namespace winnow::device
