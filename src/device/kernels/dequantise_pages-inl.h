// Pages of codes as pages of float16, for kernels that read floats. A warp takes a row at a time, a lane eight numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/codes-inl.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace dequantise {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;

// Dequantises the page's keys or its values.
WINNOW_DEVICE void rows_of(const std::byte* marked, std::byte* to, int dim, const std::byte* origin) {
  const auto address = reinterpret_cast<std::uintptr_t>(marked);
  const EntryType type = code_type(static_cast<std::uint32_t>(address));
  if (type == EntryType::kF32) return;
  const auto* from = reinterpret_cast<const std::byte*>(address & ~kRowTypeBits);
  const CodedRow layout(type, dim);
  const int first = 8 * simt::lane();
  const bool has_numbers = first < dim;  // all lanes take part in the rotation
  float shift[8] = {};
  if (origin != nullptr && has_numbers) {
    const simt::Words4 words = simt::load_16(origin + 2 * first);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      shift[2 * i] = simt::low_f16(words.x[i]);
      shift[2 * i + 1] = simt::high_f16(words.x[i]);
    }
  }
  WINNOW_NO_UNROLL
  for (int row = simt::warp(); row < kPageSlots; row += kWarps) {
    simt::Words4 words;
    with_code(type, [&](auto code) {
      words = numbers_of(code, load_codes(code, layout, from + row * layout.bytes, has_numbers ? first : 0));
    });
    float x[8];
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = simt::low_f16(words.x[i]);
      x[2 * i + 1] = simt::high_f16(words.x[i]);
    }
    if (is_rotated(type)) rotate_eighths(x, layout.block);
    if (!has_numbers) continue;
    simt::Words4 packed;
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      packed.x[i] = pack_row_numbers(false, x[2 * i] + shift[2 * i], x[2 * i + 1] + shift[2 * i + 1]);
    }
    simt::store_16(to + 2 * (row * dim + first), packed);
  }
}

// A block takes the keys (block_y 0) or the values of a page.
WINNOW_KERNEL void WINNOW_THREADS(kThreads, 8) dequantise_pages(DequantisePages plan) {
  const CodedPage page = plan.pages[simt::block_x()];
  if (simt::block_y() == 0) {
    rows_of(page.from.keys, page.to.keys, plan.key_dim, page.origin);
  } else {
    rows_of(page.from.values, page.to.values, plan.value_dim, nullptr);
  }
}

}  // namespace dequantise

inline void queue_dequantise_pages(simt::Queue& queue, const DequantisePages& plan) {
  simt::launch(queue, {static_cast<unsigned>(plan.n_pages), 2}, dequantise::kThreads, 0, dequantise::dequantise_pages,
               plan);
}

}  // namespace winnow::device
