// The kernels between a layer's products in a decoding step, for its few rows: norms, gates, and quantisation of rows
// to 8 bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace row_steps {

inline constexpr int kBlock = 32;  // numbers that share a scale, held by eight neighbouring lanes

struct Four {
  float x[4];
};

WINNOW_DEVICE Four load_four(const float* from) {
  const simt::Words4 words = simt::load_16(from);
  Four four;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) four.x[i] = simt::float_of(words.x[i]);
  return four;
}

WINNOW_DEVICE void store_four(float* to, const Four& four) {
  simt::store_16(
      to, {{simt::bits_of(four.x[0]), simt::bits_of(four.x[1]), simt::bits_of(four.x[2]), simt::bits_of(four.x[3])}});
}

// Quantises four numbers to 8 bits and stores them at `at` (an index over all rows), together with the lanes that hold
// the rest of the block. All lanes of a warp call it; those without numbers store none.
WINNOW_DEVICE void store_eight_bits(const EightBitRows& rows, std::size_t at, const Four& four, bool has_numbers) {
  float most = 0;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) most = simt::max(most, simt::max(four.x[i], -four.x[i]));
  most = simt::max_lanes<1, kBlock / 4>(most);
  const float scale = most / 127.0F;
  const float inverse = most > 0 ? 127.0F / most : 0.0F;
  std::uint32_t word = 0;
  std::int32_t sum = 0;
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) {
    const std::int32_t byte = simt::nearest(simt::multiply(four.x[i], inverse));
    sum += byte;
    word |= (static_cast<std::uint32_t>(byte) & 0xFFU) << (8U * static_cast<unsigned>(i));
  }
  sum = simt::sum_lanes<1, kBlock / 4>(sum);
  if (!has_numbers) return;
  *reinterpret_cast<std::uint32_t*>(rows.numbers + at) = word;
  if (at % kBlock == 0) {
    float* to = rows.scales + at / kBlock * 2;
    to[0] = scale;
    to[1] = simt::multiply(scale, static_cast<float>(sum));
  }
}

inline constexpr int kThreads = 256;

inline WINNOW_KERNEL void WINNOW_THREADS(kThreads, 4) quantise(QuantiseRows plan) {
  simt::wait_for_previous();
  simt::let_next_begin();
  const std::size_t n = static_cast<std::size_t>(plan.n_rows) * static_cast<std::size_t>(plan.n);
  const std::size_t at =
      (static_cast<std::size_t>(simt::block_x()) * kThreads + static_cast<std::size_t>(simt::thread())) * 4;
  const bool has_numbers = at < n;
  Four four = {};
  if (has_numbers) four = load_four(plan.x + at);
  store_eight_bits(plan.to, at, four, has_numbers);
}

WINNOW_DEVICE float activate(GateActivation activation, float x) {
  constexpr float kLog2e = 1.4426950408889634F;
  if (activation == GateActivation::kSilu) return x / (1.0F + simt::exp2(simt::multiply(-kLog2e, x)));
  constexpr float kRootOf2OverPi = 0.79788456080286535588F, kCubic = 0.044715F;
  const float inner = simt::multiply(simt::multiply(kRootOf2OverPi, x), simt::fma(simt::multiply(kCubic, x), x, 1.0F));
  return simt::multiply(simt::multiply(0.5F, x), 1.0F + simt::tanh(inner));
}

inline WINNOW_KERNEL void WINNOW_THREADS(kThreads, 4) gate(GatedRows plan) {
  simt::wait_for_previous();
  simt::let_next_begin();
  const std::size_t n = static_cast<std::size_t>(plan.n_rows) * static_cast<std::size_t>(plan.n);
  const std::size_t at =
      (static_cast<std::size_t>(simt::block_x()) * kThreads + static_cast<std::size_t>(simt::thread())) * 4;
  const bool has_numbers = at < n;
  Four four = {};
  if (has_numbers) {
    const Four gates = load_four(plan.gate + at);
    const Four ups = load_four(plan.up + at);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) four.x[i] = simt::multiply(activate(plan.activation, gates.x[i]), ups.x[i]);
    if (plan.out != nullptr) store_four(plan.out + at, four);
  }
  if (plan.eight.numbers != nullptr) store_eight_bits(plan.eight, at, four, has_numbers);
}

inline constexpr int kNormThreads = 1024;
inline constexpr int kNormWarps = kNormThreads / 32;

// A block takes one row, whose numbers stay in registers: kFours times four per thread.
template <int kFours>
WINNOW_KERNEL void WINNOW_THREADS(kNormThreads, 1) norm(RmsNormRows plan) {
  float* sums = reinterpret_cast<float*>(simt::shared());  // [kNormWarps]
  Four weights[kFours] = {};
  Four numbers[kFours] = {};
  const int first = 4 * simt::thread();
  WINNOW_UNROLL
  for (int k = 0; k < kFours; ++k) {
    const int i = first + k * 4 * kNormThreads;
    if (i >= plan.n) continue;
    if (plan.weight != nullptr) {
      weights[k] = load_four(plan.weight + i);
    } else {
      weights[k] = {1.0F, 1.0F, 1.0F, 1.0F};
    }
  }
  simt::wait_for_previous();
  simt::let_next_begin();
  const std::size_t row = static_cast<std::size_t>(simt::block_x()) * static_cast<std::size_t>(plan.n);
  float sum = 0;
  WINNOW_UNROLL
  for (int k = 0; k < kFours; ++k) {
    const int i = first + k * 4 * kNormThreads;
    if (i >= plan.n) continue;
    const std::size_t at = row + static_cast<std::size_t>(i);
    numbers[k] = load_four(plan.x + at);
    if (plan.add != nullptr) {
      const Four add = load_four(plan.add + at);
      WINNOW_UNROLL
      for (int x = 0; x < 4; ++x) numbers[k].x[x] += add.x[x];
      store_four(plan.x + at, numbers[k]);
    }
    WINNOW_UNROLL
    for (int x = 0; x < 4; ++x) sum = simt::fma(numbers[k].x[x], numbers[k].x[x], sum);
  }
  sum = simt::sum_lanes<1, 32>(sum);
  if (simt::lane() == 0) sums[simt::warp()] = sum;
  simt::barrier();
  static_assert(kNormWarps == 32);
  sum = simt::sum_lanes<1, 32>(sums[simt::lane()]);
  const float factor = 1.0F / simt::sqrt(sum / static_cast<float>(plan.n) + plan.eps);
  WINNOW_UNROLL
  for (int k = 0; k < kFours; ++k) {
    const int i = first + k * 4 * kNormThreads;
    const std::size_t at = row + static_cast<std::size_t>(i);
    Four out;
    WINNOW_UNROLL
    for (int x = 0; x < 4; ++x) out.x[x] = simt::multiply(simt::multiply(numbers[k].x[x], factor), weights[k].x[x]);
    if (plan.out != nullptr && i < plan.n) store_four(plan.out + at, out);
    if (plan.eight.numbers != nullptr) store_eight_bits(plan.eight, at, out, i < plan.n);
  }
}

inline unsigned blocks_of(int n_rows, int n) {
  const std::size_t fours = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(n) / 4;
  return static_cast<unsigned>((fours + kThreads - 1) / kThreads);
}

template <int kFours>
void queue_norm_of_size(simt::Queue& queue, const RmsNormRows& plan) {
  simt::launch_overlapping(queue, {static_cast<unsigned>(plan.n_rows)}, kNormThreads, kNormWarps * sizeof(float),
                           norm<kFours>, plan);
}

}  // namespace row_steps

inline void queue_quantise_rows(simt::Queue& queue, const QuantiseRows& plan) {
  simt::launch_overlapping(queue, {row_steps::blocks_of(plan.n_rows, plan.n)}, row_steps::kThreads, 0,
                           row_steps::quantise, plan);
}

inline void queue_gated_rows(simt::Queue& queue, const GatedRows& plan) {
  simt::launch_overlapping(queue, {row_steps::blocks_of(plan.n_rows, plan.n)}, row_steps::kThreads, 0, row_steps::gate,
                           plan);
}

inline void queue_rms_norm_rows(simt::Queue& queue, const RmsNormRows& plan) {
  constexpr int kAtOnce = 4 * row_steps::kNormThreads;
  static_assert(kMaxNormNumbers == 4 * kAtOnce);
  if (plan.n <= kAtOnce) return row_steps::queue_norm_of_size<1>(queue, plan);
  if (plan.n <= 2 * kAtOnce) return row_steps::queue_norm_of_size<2>(queue, plan);
  row_steps::queue_norm_of_size<4>(queue, plan);
}

}  // namespace winnow::device
