#include "kernels/few_rows_product.h"

#include <hwy/base.h>

#include <algorithm>
#include <cassert>

#include "kernels/isa.h"

#if HWY_ARCH_X86_64

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,fma,f16c")

namespace winnow::kernels {
namespace {

inline constexpr std::int64_t kBlock = 32;    // numbers of a block
inline constexpr std::int64_t kGroup = 16;    // blocks whose scales are taken together
inline constexpr std::int64_t kAhead = 2048;  // bytes of weights that are on their way: measured, with cold weights

// A quantised row: the blocks' scales, scale * sum of the block's integers, and the integers; zero behind the last
// block up to a whole group.
struct RowLayout {
  explicit RowLayout(std::int64_t n_in) : n_blocks((n_in / kBlock + kGroup - 1) / kGroup * kGroup) {}
  std::size_t bytes() const { return static_cast<std::size_t>(n_blocks) * (2 * sizeof(float) + kBlock); }
  const float* scales(const std::byte* row) const { return reinterpret_cast<const float*>(row); }
  const float* sums(const std::byte* row) const { return scales(row) + n_blocks; }
  const std::byte* integers(const std::byte* row) const { return row + 2 * sizeof(float) * n_blocks; }

  std::int64_t n_blocks;
};

// How a format's block lies in memory: a float16 scale d, then perhaps a float16 minimum, then the integers q >= 0; a
// weight is d * q + minimum.
struct Q4_0Blocks {
  static constexpr std::int64_t kBytes = 18;
  static constexpr std::int64_t kIntegers = 2;
  static constexpr float kMinimum = -8.0F;  // times d
  static constexpr bool kHasMinimum = false;
  static constexpr bool kNibbles = true;
};

struct Q4_1Blocks {
  static constexpr std::int64_t kBytes = 20;
  static constexpr std::int64_t kIntegers = 4;
  static constexpr float kMinimum = 0.0F;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kNibbles = true;
};

struct Q8_0Blocks {
  static constexpr std::int64_t kBytes = 34;
  static constexpr std::int64_t kIntegers = 2;
  static constexpr float kMinimum = -128.0F;  // the integers are signed: 128 more makes them positive
  static constexpr bool kHasMinimum = false;
  static constexpr bool kNibbles = false;
};

inline __m128i load_16(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
inline __m256i load_32(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

// The integers of two blocks, in order.
template <class Blocks>
inline __m512i load_pair(const std::byte* a, const std::byte* b) {
  if constexpr (Blocks::kNibbles) {
    // The low halves of a block's 16 bytes are its first 16 integers, the high halves the others.
    const __m512i both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(a)), 0xFF00, load_16(b));
    const __m512i shifted = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    return _mm512_and_si512(shifted, _mm512_set1_epi8(0x0F));
  } else {
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(load_32(a)), load_32(b), 1);
    return _mm512_xor_si512(both, _mm512_set1_epi8(-128));
  }
}

inline __m512 widen_halves(__m512i halves_in_words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves_in_words)); }

// One weight row with kRows rows.
template <class Blocks, int kRows>
inline void multiply_rows(const std::byte* weights, const RowLayout& layout, const std::byte* rows, std::int64_t n_in,
                          float* y, std::int64_t y_stride) {
  const auto bytes = static_cast<std::ptrdiff_t>(layout.bytes());
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i offsets = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(Blocks::kBytes)));
  const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  __m512 even[kRows], odd[kRows];  // two sums, since a sum takes longer than a pair
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = _mm512_setzero_ps();
  const std::int64_t n_blocks = n_in / kBlock;
  for (std::int64_t group = 0; group < n_blocks; group += kGroup, weights += kGroup * Blocks::kBytes) {
    const std::int64_t n = std::min(kGroup, n_blocks - group);
    const auto inside = static_cast<__mmask16>((1U << n) - 1U);
    // The processor's own prefetching begins anew on every page: this adds a third. Behind the last row it does no
    // harm.
    for (std::int64_t line = 0; line < n * Blocks::kBytes; line += 64) {
      __builtin_prefetch(weights + kAhead + line, 0, 2);
    }
    const __m512i heads = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), inside, offsets, weights, 1);
    const __m512 d = widen_halves(heads);
    const __m512 minimum = Blocks::kHasMinimum ? widen_halves(_mm512_srli_epi32(heads, 16))
                                               : _mm512_mul_ps(d, _mm512_set1_ps(Blocks::kMinimum));
    __m512 scale[kRows];
    const std::byte* integers[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const std::byte* row = rows + r * bytes;
      scale[r] = _mm512_mul_ps(d, _mm512_load_ps(layout.scales(row) + group));
      odd[r] = _mm512_fmadd_ps(minimum, _mm512_load_ps(layout.sums(row) + group), odd[r]);
      integers[r] = layout.integers(row) + group * kBlock;
    }
    const auto add_pair = [&](std::int64_t block, __m512(&sums)[kRows]) {
      // Behind the last block the scale is zero.
      const std::byte* first = weights + block * Blocks::kBytes + Blocks::kIntegers;
      const __m512i q = load_pair<Blocks>(first, block + 1 < n ? first + Blocks::kBytes : first);
      const __m512i both = _mm512_add_epi32(halves, _mm512_set1_epi32(static_cast<int>(block)));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m512i products =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), q, _mm512_load_si512(integers[r] + block * kBlock));
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_permutexvar_ps(both, scale[r]), sums[r]);
      }
    };
    std::int64_t block = 0;
    for (; block + 2 < n; block += 4) {
      add_pair(block, even);
      add_pair(block + 2, odd);
    }
    if (block < n) add_pair(block, even);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) y[r * y_stride] = _mm512_reduce_add_ps(_mm512_add_ps(even[r], odd[r]));
}

template <class Blocks>
void multiply(const std::byte* weights, std::size_t weight_stride, std::int64_t first, std::int64_t last,
              const std::byte* rows, std::int64_t n_in, std::int64_t n_rows, float* y, std::int64_t y_stride) {
  const RowLayout layout(n_in);
  const auto bytes = static_cast<std::ptrdiff_t>(layout.bytes());
  for (std::int64_t i = first; i < last; ++i) {
    const std::byte* weight = weights + static_cast<std::size_t>(i) * weight_stride;
    std::int64_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
      multiply_rows<Blocks, 4>(weight, layout, rows + r * bytes, n_in, y + r * y_stride + i, y_stride);
    }
    const std::byte* left = rows + r * bytes;
    float* out = y + r * y_stride + i;
    if (n_rows - r == 3) multiply_rows<Blocks, 3>(weight, layout, left, n_in, out, y_stride);
    if (n_rows - r == 2) multiply_rows<Blocks, 2>(weight, layout, left, n_in, out, y_stride);
    if (n_rows - r == 1) multiply_rows<Blocks, 1>(weight, layout, left, n_in, out, y_stride);
  }
}

}  // namespace

bool has_few_rows_product(WeightBlocks blocks) {
  return current_int8_unit() == Int8Unit::kAvx512Vnni &&
         (blocks == WeightBlocks::kQ4_0 || blocks == WeightBlocks::kQ4_1 || blocks == WeightBlocks::kQ8_0);
}

std::size_t few_rows_bytes(std::int64_t n_in, std::int64_t n_rows) {
  return RowLayout(n_in).bytes() * static_cast<std::size_t>(n_rows);
}

void quantise_few_rows(const float* rows, std::int64_t n_in, std::int64_t n_rows, std::byte* out) {
  assert(n_in % kBlock == 0);
  const RowLayout layout(n_in);
  for (std::int64_t r = 0; r < n_rows; ++r, rows += n_in, out += layout.bytes()) {
    auto* scales = reinterpret_cast<float*>(out);
    float* sums = scales + layout.n_blocks;
    std::byte* integers = out + 2 * sizeof(float) * layout.n_blocks;
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
      sums[block] = scale * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
    }
    std::fill(scales + block, scales + layout.n_blocks, 0.0F);
    std::fill(sums + block, sums + layout.n_blocks, 0.0F);
    std::fill(integers + block * kBlock, integers + layout.n_blocks * kBlock, std::byte{0});
  }
}

void few_rows_product(WeightBlocks blocks, const std::byte* weights, std::size_t weight_stride, std::int64_t first,
                      std::int64_t last, const std::byte* rows, std::int64_t n_in, std::int64_t n_rows, float* y,
                      std::int64_t y_stride) {
  assert(has_few_rows_product(blocks));
  switch (blocks) {
    case WeightBlocks::kQ4_0:
      return multiply<Q4_0Blocks>(weights, weight_stride, first, last, rows, n_in, n_rows, y, y_stride);
    case WeightBlocks::kQ4_1:
      return multiply<Q4_1Blocks>(weights, weight_stride, first, last, rows, n_in, n_rows, y, y_stride);
    case WeightBlocks::kQ8_0:
      return multiply<Q8_0Blocks>(weights, weight_stride, first, last, rows, n_in, n_rows, y, y_stride);
    default:
      break;  // ggml's
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool has_few_rows_product(WeightBlocks) { return false; }
std::size_t few_rows_bytes(std::int64_t, std::int64_t) { return 0; }
void quantise_few_rows(const float*, std::int64_t, std::int64_t, std::byte*) {}
void few_rows_product(WeightBlocks, const std::byte*, std::size_t, std::int64_t, std::int64_t, const std::byte*,
                      std::int64_t, std::int64_t, float*, std::int64_t) {}

}  // namespace winnow::kernels
#endif
