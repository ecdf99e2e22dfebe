// Products of few rows for any instruction set. Included by few_rows_*.cc behind their attributes and vectors; they
// also have
//   Vectors: what quantises numbers (int8_vectors_*-inl.h);
//   has_product(blocks): whether there is one for a format;
//   kDotSaturates: sums of two products of bytes have 16 bits. Weights above 127 are then taken as signed ones.
#pragma once

#include "kernels/few_rows_formats-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::int64_t kMostRows = 4;  // at once: what the registers hold
inline constexpr std::int64_t kAhead = 8192;  // bytes of weights that are on their way: measured, with cold weights

// One weight row with kRows rows.
template <class Format, int kRows>
class RowProducts {
 public:
  using Scales = typename Format::Scales;
  static constexpr bool kHalves = std::is_same_v<Scales, HalfScales>;
  static constexpr std::int64_t kWhole = kHalves ? 8 : 16;  // blocks of a group

  RowProducts(const FewRowsLayout& layout, const std::byte* rows)
      : layout_(layout), rows_(rows), row_bytes_(static_cast<std::ptrdiff_t>(layout.bytes())) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) total_[r] = zeros();
  }

  // `first`: the scales of the row's first group if that is a whole one; then those of the row at `next`. A group's
  // scales are ready before its turn: making them takes longer than the processor looks ahead.
  HWY_INLINE void add_row(const std::byte* weights, const std::byte* next, std::int64_t n_blocks, Scales& first) {
    std::int64_t block = 0;
    for (; block + kWhole <= n_blocks; block += kWhole, weights += Format::kGroupBytes) {
      const Scales scales = first;
      const bool is_last = block + 2 * kWhole > n_blocks;
      first = Format::scales(is_last ? next : weights + Format::kGroupBytes, kWhole);
      add_group(weights, block, std::integral_constant<std::int64_t, kWhole>(), scales);
    }
    if (!kHalves && block < n_blocks) {
      add_group(weights, block, n_blocks - block, Format::scales(weights, n_blocks - block));
    }
  }

  HWY_INLINE void store(float* y, std::int64_t stride) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) y[r * stride] = total(total_[r]);
  }

 private:
  // n: of the row's blocks from `first` on
  template <class N>
  HWY_INLINE void add_group(const std::byte* weights, std::int64_t first, N number, const Scales& scales) {
    const std::int64_t n = number;
    // The processor's own prefetching begins anew on every page: this adds a third. Behind the last row it does no
    // harm.
    for (std::int64_t line = 0; line < Format::kGroupBytes; line += 64) {
      __builtin_prefetch(weights + kAhead + line, 0, 3);
    }
    RowScales<Scales> row_scales[kRows];
    Floats sums[kChains][kRows];  // of the group: adding each pair to the total takes longer
    const std::byte* integers[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const std::byte* row = rows_ + r * row_bytes_;
#pragma GCC unroll 2
      for (int c = 0; c < kChains - 1; ++c) sums[c][r] = zeros();
      sums[kChains - 1][r] = row_scales[r].set(scales, layout_.scales(row) + first, layout_.sums(row) + first,
                                               layout_.template half_sums<HalfSum>(row) + 2 * first);
      integers[r] = layout_.integers(row) + first * kFewRowsBlock;
    }
    std::int64_t pair = 0;
#pragma GCC unroll 4
    for (; 2 * pair + 2 < n; pair += 2) {
      add_pair(Format::integers(weights, pair, n), pair, integers, scales, row_scales, sums[0]);
      add_pair(Format::integers(weights, pair + 1, n), pair + 1, integers, scales, row_scales, sums[kChains - 1]);
    }
    if (2 * pair < n) add_pair(Format::integers(weights, pair, n), pair, integers, scales, row_scales, sums[0]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      total_[r] = add(total_[r], kChains == 1 ? sums[0][r] : add(sums[0][r], sums[kChains - 1][r]));
    }
  }

  HWY_INLINE static void add_pair(Bits q, std::int64_t pair, const std::byte* const (&integers)[kRows],
                                  const Scales& scales, const RowScales<Scales> (&row_scales)[kRows],
                                  Floats (&sums)[kRows]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Bits x = load_64(integers[r] + 2 * pair * kFewRowsBlock);
      sums[r] = row_scales[r].template add_products<Format::kIsWide>(scales, pair, q, x, sums[r]);
    }
  }

  const FewRowsLayout& layout_;
  const std::byte* rows_;
  std::ptrdiff_t row_bytes_;
  Floats total_[kRows];
};

// Weight rows [first, last) with kRows rows.
template <class Format, int kRows>
HWY_NOINLINE void multiply_rows(const FewRowsTask& task, const FewRowsLayout& layout, std::int64_t first,
                                std::int64_t last, std::int64_t first_row) {
  constexpr std::int64_t kWhole = RowProducts<Format, kRows>::kWhole;
  const std::byte* rows = task.rows + first_row * static_cast<std::ptrdiff_t>(layout.bytes());
  float* y = task.y + first_row * task.y_stride;
  const std::int64_t n_blocks = task.n_in / kFewRowsBlock;
  const auto row = [&](std::int64_t i) { return task.weights + static_cast<std::size_t>(i) * task.weight_stride; };
  typename Format::Scales scales{};
  if (n_blocks >= kWhole) scales = Format::scales(row(first), kWhole);
  for (std::int64_t i = first; i < last; ++i) {
    RowProducts<Format, kRows> products(layout, rows);
    products.add_row(row(i), row(std::min(i + 1, last - 1)), n_blocks, scales);
    products.store(y + i, task.y_stride);
  }
}

template <class Format>
void multiply_blocks(const FewRowsTask& task) {
  constexpr auto kMultiply = std::array{multiply_rows<Format, 1>, multiply_rows<Format, 2>, multiply_rows<Format, 3>,
                                        multiply_rows<Format, 4>};
  const FewRowsLayout layout(task.n_in);
  // A weight row is read once, for all rows.
  const std::int64_t step = task.n_rows > kMostRows ? 1 : task.last - task.first;
  for (std::int64_t i = task.first; i < task.last; i += step) {
    for (std::int64_t r = 0; r < task.n_rows; r += kMostRows) {
      const std::int64_t n = std::min(task.n_rows - r, kMostRows);
      kMultiply[static_cast<std::size_t>(n - 1)](task, layout, i, i + step, r);
    }
  }
}

// Formats without a product are not compiled.
template <class Format, WeightBlocks blocks>
void multiply_if(const FewRowsTask& task) {
  if constexpr (has_product(blocks)) multiply_blocks<Format>(task);
}

void quantise(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out) {
  const FewRowsLayout layout(n_in);
  for (std::int64_t r = 0; r < n_rows; ++r, rows += n_in, out += layout.bytes()) {
    float *scales = layout.scales(out), *sums = layout.sums(out);
    HalfSum* half_sums = layout.half_sums<HalfSum>(out);
    std::byte* integers = layout.integers(out);
    std::int64_t block = 0;
    for (; block < n_in / kFewRowsBlock; ++block) {
      const float* numbers = rows + block * kFewRowsBlock;
      auto* q = reinterpret_cast<std::int8_t*>(integers + block * kFewRowsBlock);
      const float most = std::max(Vectors::max_16(numbers), Vectors::max_16(numbers + 16));
      const float scale = most / 127.0F, inverse = most > 0.0F ? 127.0F / most : 0.0F;
      const std::int32_t low = Vectors::quantise_16(numbers, inverse, q);
      const std::int32_t high = Vectors::quantise_16(numbers + 16, inverse, q + 16);
      scales[block] = scale;
      sums[block] = scale * static_cast<float>(low + high);
      half_sums[2 * block] = half_sum(scale, low);
      half_sums[2 * block + 1] = half_sum(scale, high);
    }
    const std::int64_t n_blocks = layout.n_blocks();
    std::fill(scales + block, scales + n_blocks, 0.0F);
    std::fill(sums + block, sums + n_blocks, 0.0F);
    std::fill(half_sums + 2 * block, half_sums + 2 * n_blocks, HalfSum{0});
    std::fill(integers + block * kFewRowsBlock, integers + n_blocks * kFewRowsBlock, std::byte{0});
  }
}

void multiply(WeightBlocks blocks, const FewRowsTask& task) {
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return multiply_if<Q4_0Rows, WeightBlocks::kQ4_0>(task);
    case WeightBlocks::kQ4_1:
      return multiply_if<Q4_1Rows, WeightBlocks::kQ4_1>(task);
    case WeightBlocks::kQ5_0:
      return multiply_if<Q5_0Rows, WeightBlocks::kQ5_0>(task);
    case WeightBlocks::kQ5_1:
      return multiply_if<Q5_1Rows, WeightBlocks::kQ5_1>(task);
    case WeightBlocks::kQ8_0:
      return multiply_if<Q8_0Rows, WeightBlocks::kQ8_0>(task);
    case WeightBlocks::kQ2_K:
      return multiply_if<Q2_KRows, WeightBlocks::kQ2_K>(task);
    case WeightBlocks::kQ3_K:
      return multiply_if<Q3_KRows, WeightBlocks::kQ3_K>(task);
    case WeightBlocks::kQ4_K:
      return multiply_if<Q4_KRows, WeightBlocks::kQ4_K>(task);
    case WeightBlocks::kQ5_K:
      return multiply_if<Q5_KRows, WeightBlocks::kQ5_K>(task);
    case WeightBlocks::kQ6_K:
      return multiply_if<Q6_KRows, WeightBlocks::kQ6_K>(task);
    case WeightBlocks::kIQ4_NL:
      return multiply_if<IQ4_NLRows, WeightBlocks::kIQ4_NL>(task);
    case WeightBlocks::kIQ4_XS:
      return multiply_if<IQ4_XSRows, WeightBlocks::kIQ4_XS>(task);
    case WeightBlocks::kMXFP4:
      return multiply_if<MXFP4Rows, WeightBlocks::kMXFP4>(task);
  }
}

}  // namespace
}  // namespace winnow::kernels
