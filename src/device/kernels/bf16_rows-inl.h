// Converts rows of float32 to bfloat16 for products, which read them in half the bytes. Rows are only converted,
// normalised, or gated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace bf16_rows {

inline constexpr int kThreads = 256;
inline constexpr int kNumbers = 8;  // per thread at a time: 16 bytes of bfloat16

struct Numbers {
  float x[kNumbers];
};

WINNOW_DEVICE Numbers load(const float* from) {
  Numbers numbers;
  WINNOW_UNROLL
  for (int half = 0; half < 2; ++half) {
    const simt::Words4 words = simt::load_16(from + 4 * half);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) numbers.x[4 * half + i] = simt::float_of(words.x[i]);
  }
  return numbers;
}

WINNOW_DEVICE void store(const Numbers& numbers, std::byte* to) {
  simt::Words4 words;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) words.x[i] = simt::pack_bf16(numbers.x[2 * i], numbers.x[2 * i + 1]);
  simt::store_16(to, words);
}

// Returns the index of the thread's first number.
WINNOW_DEVICE std::int64_t first_number() {
  return (static_cast<std::int64_t>(simt::block_x()) * kThreads + simt::thread()) * kNumbers;
}

inline WINNOW_KERNEL void WINNOW_THREADS(kThreads, 4) convert(RowsToBf16 p) {
  const std::int64_t i = first_number();
  if (i < p.n) store(load(p.from + i), static_cast<std::byte*>(p.to) + 2 * i);
}

inline WINNOW_KERNEL void WINNOW_THREADS(kThreads, 4) gate(GatedToBf16 p) {
  constexpr float kLog2e = 1.44269504088896F;
  constexpr float kSqrt2OverPi = 0.79788456080287F, kCubic = 0.044715F;
  const std::int64_t i = first_number();
  if (i >= p.n) return;
  const Numbers gates = load(p.gate + i), ups = load(p.up + i);
  Numbers products;
  WINNOW_UNROLL
  for (int k = 0; k < kNumbers; ++k) {
    const float x = gates.x[k];
    // GELU by tanh is x times a sigmoid, too: (1 + tanh z) / 2 = 1 / (1 + exp(-2 z)).
    const float z = p.is_gelu ? 2.0F * kSqrt2OverPi * x * simt::fma(kCubic * x, x, 1.0F) : x;
    products.x[k] = x / (1.0F + simt::exp2(-kLog2e * z)) * ups.x[k];
  }
  store(products, static_cast<std::byte*>(p.to) + 2 * i);
}

// Each block normalises one row.
inline WINNOW_KERNEL void WINNOW_THREADS(kThreads, 4) norm(NormedToBf16 p) {
  constexpr int kWarps = kThreads / 32;
  auto* sums = reinterpret_cast<float*>(simt::shared());  // [kWarps]
  const std::int64_t row = simt::block_x();
  const float* from = p.from + row * p.n;
  float sum = 0.0F;
  for (int i = simt::thread() * kNumbers; i < p.n; i += kThreads * kNumbers) {
    const Numbers numbers = load(from + i);
    WINNOW_UNROLL
    for (int k = 0; k < kNumbers; ++k) sum = simt::fma(numbers.x[k], numbers.x[k], sum);
  }
  sum = simt::sum_lanes<1, 32>(sum);
  if (simt::lane() == 0) sums[simt::warp()] = sum;
  simt::barrier();
  float squares = 0.0F;
  WINNOW_UNROLL
  for (int w = 0; w < kWarps; ++w) squares += sums[w];
  const float scale = 1.0F / simt::sqrt(squares / static_cast<float>(p.n) + p.eps);
  for (int i = simt::thread() * kNumbers; i < p.n; i += kThreads * kNumbers) {
    Numbers numbers = load(from + i);
    WINNOW_UNROLL
    for (int k = 0; k < kNumbers; ++k) numbers.x[k] *= scale;
    if (p.weight != nullptr) {
      const Numbers weights = load(p.weight + i);
      WINNOW_UNROLL
      for (int k = 0; k < kNumbers; ++k) numbers.x[k] *= weights.x[k];
    }
    store(numbers, static_cast<std::byte*>(p.to) + 2 * (row * p.n + i));
  }
}

inline simt::Grid grid_of(std::int64_t n) {
  constexpr std::int64_t kPerBlock = kThreads * kNumbers;
  return {.x = static_cast<unsigned>((n + kPerBlock - 1) / kPerBlock)};
}

}  // namespace bf16_rows

inline void queue_rows_to_bf16(simt::Queue& queue, const RowsToBf16& plan) {
  simt::launch(queue, bf16_rows::grid_of(plan.n), bf16_rows::kThreads, 0, bf16_rows::convert, plan);
}

inline void queue_gated_to_bf16(simt::Queue& queue, const GatedToBf16& plan) {
  simt::launch(queue, bf16_rows::grid_of(plan.n), bf16_rows::kThreads, 0, bf16_rows::gate, plan);
}

inline void queue_normed_to_bf16(simt::Queue& queue, const NormedToBf16& plan) {
  simt::launch(queue, {.x = static_cast<unsigned>(plan.n_rows)}, bf16_rows::kThreads,
               bf16_rows::kThreads / 32 * sizeof(float), bf16_rows::norm, plan);
}

}  // namespace winnow::device
