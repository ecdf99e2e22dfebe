#include "kernels/few_rows_product.h"

#include <hwy/base.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <type_traits>

#include "kernels/isa.h"

#if HWY_ARCH_X86_64

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,avx2,fma,f16c")

#include "kernels/few_rows_formats-inl.h"

namespace winnow::kernels {
namespace {

inline constexpr std::int64_t kBlock = 32;    // numbers of a block
inline constexpr std::int64_t kGroup = 16;    // blocks whose scales fill a vector
inline constexpr std::int64_t kMostRows = 4;  // at once: what the registers hold
inline constexpr std::int64_t kAhead = 8192;  // bytes of weights that are on their way: measured, with cold weights

// A quantised row: the blocks' scales, scale * sum of the block's integers, the same of its halves, and the integers;
// zero behind the last block up to a whole group.
class RowLayout {
 public:
  explicit RowLayout(std::int64_t n_in) : n_blocks_((n_in / kBlock + kGroup - 1) / kGroup * kGroup) {}

  std::int64_t n_blocks() const { return n_blocks_; }
  std::size_t bytes() const { return static_cast<std::size_t>(n_blocks_) * (4 * sizeof(float) + kBlock); }

  // Of a row that is written or only read.
  auto* scales(auto* row) const { return floats(row, 0); }
  auto* sums(auto* row) const { return floats(row, n_blocks_); }
  auto* half_sums(auto* row) const { return floats(row, 2 * n_blocks_); }
  auto* integers(auto* row) const { return row + 4 * sizeof(float) * n_blocks_; }

  // Of 16 blocks from one on, or of the 16 halves of 8.
  template <bool kHalves>
  __m512 scales(const std::byte* row, std::int64_t first) const {
    const float* from = scales(row) + first;
    if constexpr (!kHalves) return _mm512_load_ps(from);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_load_ps(from)));
  }
  template <bool kHalves>
  __m512 sums(const std::byte* row, std::int64_t first) const {
    return _mm512_load_ps(kHalves ? half_sums(row) + 2 * first : sums(row) + first);
  }

 private:
  static const float* floats(const std::byte* row, std::int64_t i) { return reinterpret_cast<const float*>(row) + i; }
  static float* floats(std::byte* row, std::int64_t i) { return reinterpret_cast<float*>(row) + i; }

  std::int64_t n_blocks_;
};

// One weight row with kRows rows.
template <class Format, int kRows>
class RowProducts {
 public:
  static constexpr std::int64_t kWhole = Format::kHalves ? 8 : 16;  // blocks of a group

  RowProducts(const RowLayout& layout, const std::byte* rows)
      : layout_(layout), rows_(rows), row_bytes_(static_cast<std::ptrdiff_t>(layout.bytes())) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) total_[r] = _mm512_setzero_ps();
  }

  // `first`: the scales of the row's first group if that is a whole one; then those of the row at `next`. A group's
  // scales are ready before its turn: making them takes longer than the processor looks ahead.
  HWY_INLINE void add(const std::byte* weights, const std::byte* next, std::int64_t n_blocks, Scales& first) {
    std::int64_t block = 0;
    for (; block + kWhole <= n_blocks; block += kWhole, weights += Format::kGroupBytes) {
      const Scales scales = first;
      const bool is_last = block + 2 * kWhole > n_blocks;
      first = Format::scales(is_last ? next : weights + Format::kGroupBytes, kWhole);
      add_group(weights, block, std::integral_constant<std::int64_t, kWhole>(), scales);
    }
    if (!Format::kHalves && block < n_blocks) {
      add_group(weights, block, n_blocks - block, Format::scales(weights, n_blocks - block));
    }
  }

  HWY_INLINE void store(float* y, std::int64_t stride) const {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) y[r * stride] = _mm512_reduce_add_ps(total_[r]);
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
    __m512 scale[kRows], even[kRows], odd[kRows];  // sums of the group: adding each pair to the total takes longer
    const std::byte* integers[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const std::byte* row = rows_ + r * row_bytes_;
      scale[r] = _mm512_mul_ps(scales.scale, layout_.template scales<Format::kHalves>(row, first));
      even[r] = _mm512_setzero_ps();
      odd[r] = _mm512_mul_ps(scales.minimum, layout_.template sums<Format::kHalves>(row, first));
      integers[r] = layout_.integers(row) + first * kBlock;
    }
    std::int64_t pair = 0;
#pragma GCC unroll 4
    for (; 2 * pair + 2 < n; pair += 2) {
      add_pair(Format::integers(weights, pair, n), pair, integers, scale, even);
      add_pair(Format::integers(weights, pair + 1, n), pair + 1, integers, scale, odd);
    }
    if (2 * pair < n) add_pair(Format::integers(weights, pair, n), pair, integers, scale, even);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) total_[r] = _mm512_add_ps(total_[r], _mm512_add_ps(even[r], odd[r]));
  }

  HWY_INLINE static void add_pair(__m512i q, std::int64_t pair, const std::byte* const (&integers)[kRows],
                                  const __m512 (&scale)[kRows], __m512 (&sums)[kRows]) {
    const __m512i lanes = Format::kHalves ? _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)
                                          : _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const auto step = static_cast<int>(Format::kHalves ? 4 * pair : 2 * pair);
    const __m512i scale_of = _mm512_add_epi32(lanes, _mm512_set1_epi32(step));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512i x = _mm512_load_si512(integers[r] + 2 * pair * kBlock);
      const __m512 products = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), q, x));
      sums[r] = _mm512_fmadd_ps(products, _mm512_permutexvar_ps(scale_of, scale[r]), sums[r]);
    }
  }

  const RowLayout& layout_;
  const std::byte* rows_;
  std::ptrdiff_t row_bytes_;
  __m512 total_[kRows];
};

// Weight rows [first, last) with kRows rows.
template <class Format, int kRows>
HWY_NOINLINE void multiply_rows(const FewRowsTask& task, const RowLayout& layout, std::int64_t first, std::int64_t last,
                                std::int64_t first_row) {
  constexpr std::int64_t kWhole = RowProducts<Format, kRows>::kWhole;
  const std::byte* rows = task.rows + first_row * static_cast<std::ptrdiff_t>(layout.bytes());
  float* y = task.y + first_row * task.y_stride;
  const std::int64_t n_blocks = task.n_in / kBlock;
  const auto row = [&](std::int64_t i) { return task.weights + static_cast<std::size_t>(i) * task.weight_stride; };
  Scales scales{};
  if (n_blocks >= kWhole) scales = Format::scales(row(first), kWhole);
  for (std::int64_t i = first; i < last; ++i) {
    RowProducts<Format, kRows> products(layout, rows);
    products.add(row(i), row(std::min(i + 1, last - 1)), n_blocks, scales);
    products.store(y + i, task.y_stride);
  }
}

template <class Format>
void multiply(const FewRowsTask& task) {
  constexpr auto kMultiply = std::array{multiply_rows<Format, 1>, multiply_rows<Format, 2>, multiply_rows<Format, 3>,
                                        multiply_rows<Format, 4>};
  const RowLayout layout(task.n_in);
  // A weight row is read once, for all rows.
  const std::int64_t step = task.n_rows > kMostRows ? 1 : task.last - task.first;
  for (std::int64_t i = task.first; i < task.last; i += step) {
    for (std::int64_t r = 0; r < task.n_rows; r += kMostRows) {
      const std::int64_t n = std::min(task.n_rows - r, kMostRows);
      kMultiply[static_cast<std::size_t>(n - 1)](task, layout, i, i + step, r);
    }
  }
}

}  // namespace

bool has_few_rows_product() { return current_int8_unit() == Int8Unit::kAvx512Vnni; }

std::size_t few_rows_bytes(std::int64_t n_in, std::int64_t n_rows) {
  return RowLayout(n_in).bytes() * static_cast<std::size_t>(n_rows);
}

void quantise_few_rows(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out) {
  assert(n_in % kBlock == 0);
  const RowLayout layout(n_in);
  for (std::int64_t r = 0; r < n_rows; ++r, rows += n_in, out += layout.bytes()) {
    float *scales = layout.scales(out), *sums = layout.sums(out), *half_sums = layout.half_sums(out);
    std::byte* integers = layout.integers(out);
    std::int64_t block = 0;
    for (; block < n_in / kBlock; ++block) {
      const __m512 low = _mm512_loadu_ps(rows + block * kBlock);
      const __m512 high = _mm512_loadu_ps(rows + block * kBlock + 16);
      const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
      const float scale = most / 127.0F;
      const __m512 inverse = _mm512_set1_ps(most > 0.0F ? 127.0F / most : 0.0F);
      const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
      const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
      _mm_store_si128(reinterpret_cast<__m128i*>(integers + block * kBlock), _mm512_cvtsepi32_epi8(a));
      _mm_store_si128(reinterpret_cast<__m128i*>(integers + block * kBlock + 16), _mm512_cvtsepi32_epi8(b));
      scales[block] = scale;
      const int sum_a = _mm512_reduce_add_epi32(a), sum_b = _mm512_reduce_add_epi32(b);
      sums[block] = scale * static_cast<float>(sum_a + sum_b);
      half_sums[2 * block] = scale * static_cast<float>(sum_a);
      half_sums[2 * block + 1] = scale * static_cast<float>(sum_b);
    }
    const std::int64_t n_blocks = layout.n_blocks();
    std::fill(scales + block, scales + n_blocks, 0.0F);
    std::fill(sums + block, sums + n_blocks, 0.0F);
    std::fill(half_sums + 2 * block, half_sums + 2 * n_blocks, 0.0F);
    std::fill(integers + block * kBlock, integers + n_blocks * kBlock, std::byte{0});
  }
}

void few_rows_product(WeightBlocks blocks, const FewRowsTask& task) {
  assert(has_few_rows_product());
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return multiply<Q4_0Rows>(task);
    case WeightBlocks::kQ4_1:
      return multiply<Q4_1Rows>(task);
    case WeightBlocks::kQ5_0:
      return multiply<Q5_0Rows>(task);
    case WeightBlocks::kQ5_1:
      return multiply<Q5_1Rows>(task);
    case WeightBlocks::kQ8_0:
      return multiply<Q8_0Rows>(task);
    case WeightBlocks::kQ2_K:
      return multiply<Q2_KRows>(task);
    case WeightBlocks::kQ3_K:
      return multiply<Q3_KRows>(task);
    case WeightBlocks::kQ4_K:
      return multiply<Q4_KRows>(task);
    case WeightBlocks::kQ5_K:
      return multiply<Q5_KRows>(task);
    case WeightBlocks::kQ6_K:
      return multiply<Q6_KRows>(task);
    case WeightBlocks::kIQ4_NL:
      return multiply<IQ4_NLRows>(task);
    case WeightBlocks::kIQ4_XS:
      return multiply<IQ4_XSRows>(task);
    case WeightBlocks::kMXFP4:
      return multiply<MXFP4Rows>(task);
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool has_few_rows_product() { return false; }
std::size_t few_rows_bytes(std::int64_t, std::int64_t) { return 0; }
void quantise_few_rows(const float*, std::int64_t, std::int64_t, std::byte*) {}
void few_rows_product(WeightBlocks, const FewRowsTask&) {}

}  // namespace winnow::kernels
#endif
