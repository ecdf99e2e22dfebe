#include "kernels/attention/code_products.h"

#include <hwy/base.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/entries/rotated_codes.h"
#include "kernels/simd/isa.h"
#include "kernels/simd/tiling.h"
#include "winnow/entries.h"

#if HWY_ARCH_X86_64

#include "kernels/simd/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,avx512vbmi,avx2,fma,f16c")

#include "kernels/attention/code_formats-inl.h"

namespace winnow::kernels {
namespace {

constexpr float kMaxWeight = 65535.0F;

constexpr int kRows = 16;           // keys that fill a vector's lanes
constexpr int kVecs = 2;            // vectors of keys for which a query is read once
constexpr int kHeadsAtOnce = 6;     // heads for whose sums there are registers
constexpr int kDwordsOfAFetch = 2;  // dwords of keys: prefetching many lines at once would delay every other read

// Returns the scales of a block of 16 rows.
inline __m512 row_scales(const std::byte* const* rows, std::size_t at) {
  const auto bits = [&](int i) {
    std::int16_t scale;
    std::memcpy(&scale, rows[i] + at, sizeof(scale));
    return scale;
  };
  return _mm512_cvtph_ps(_mm256_setr_epi16(bits(0), bits(1), bits(2), bits(3), bits(4), bits(5), bits(6), bits(7),
                                           bits(8), bits(9), bits(10), bits(11), bits(12), bits(13), bits(14),
                                           bits(15)));
}

// Writes pointers to rows [first, first + 16), with the last row in place of those after it.
inline void row_pointers(const CodedRows& rows, std::int32_t first, const std::byte** out) {
  const std::byte* at = rows.data + static_cast<std::size_t>(first) * rows.stride;
  const std::byte* last = rows.data + static_cast<std::size_t>(rows.n - 1) * rows.stride;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) out[i] = std::min(at + static_cast<std::size_t>(i) * rows.stride, last);
}

inline __mmask16 lanes_before(std::int32_t n) {
  return static_cast<__mmask16>(n >= kRows ? 0xFFFF : n <= 0 ? 0 : (1U << n) - 1);
}

// Loads a row's chunk. Only its own bytes are read: there may be no memory after a shorter one.
template <class Format>
inline __m256i load_chunk(const std::byte* chunk) {
  if constexpr (Format::kChunkBytes == kMaxChunkBytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk));
  } else {
    return _mm256_maskz_loadu_epi32((1U << (Format::kChunkBytes / 4)) - 1, chunk);
  }
}

template <class Format>
inline __m512i two_chunks(const std::byte* low, const std::byte* high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_chunk<Format>(low)), load_chunk<Format>(high), 1);
}

// Transposes the dwords of four vectors within every 128-bit lane.
inline void transpose_lanes(__m512i* v) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), e = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, e);
  v[3] = _mm512_unpackhi_epi64(b, e);
}

// Transposes 16 rows' chunks: out[t] gets dword t of every row.
template <class Format>
inline void transpose_rows(const std::byte* const* rows, std::size_t at, __m512i* out) {
  __m512i a[4], b[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = two_chunks<Format>(rows[i] + at, rows[4 + i] + at);
    b[i] = two_chunks<Format>(rows[8 + i] + at, rows[12 + i] + at);
  }
  transpose_lanes(a);
  transpose_lanes(b);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm512_shuffle_i32x4(a[i], b[i], 0x88);
    out[4 + i] = _mm512_shuffle_i32x4(a[i], b[i], 0xDD);
  }
}

// Writes the scores of kHeads heads. queries: those of the first head, n_blocks per head
template <class Format, int kHeads>
void score_heads(const PackedQuery* queries, const CodeShape<Format>& shape, const CodedRows& keys, Ahead& ahead,
                 float* scores) {
  constexpr int kSums = Format::kSums;
  for (std::int32_t first = 0; first < keys.n; first += kVecs * kRows) {
    const std::byte* rows[kVecs][kRows];
    __m512 totals[kHeads][kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      row_pointers(keys, first + v * kRows, rows[v]);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) totals[h][v] = _mm512_setzero_ps();
    }
    for (int block = 0; block < shape.n_blocks; ++block) {
      __m512i sums[kHeads][kVecs][kSums];
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 2
        for (int s = 0; s < kSums; ++s) sums[h][0][s] = sums[h][1][s] = _mm512_setzero_si512();
      }
      for (int chunk = 0; chunk < shape.n_chunks; ++chunk) {
        __m512i codes[kVecs][kDwords];
        for (int v = 0; v < kVecs; ++v) transpose_rows<Format>(rows[v], shape.at(block, chunk), codes[v]);
#pragma GCC unroll 8
        for (int t = 0; t < kDwords; ++t) {
          if (t % kDwordsOfAFetch == 0) ahead.fetch();
          __m512i levels[kVecs][kTerms];
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) Format::key_levels(codes[v], t, levels[v]);
#pragma GCC unroll 8
          for (int h = 0; h < kHeads; ++h) {
            const PackedQuery& q = queries[h * shape.n_blocks + block];
#pragma GCC unroll 2
            for (int term = 0; term < kTerms; ++term) {
              const __m512i numbers = _mm512_set1_epi32(q.terms[chunk][t][term]);
#pragma GCC unroll 2
              for (int v = 0; v < kVecs; ++v) {
                __m512i& sum = sums[h][v][term % kSums];
                sum = _mm512_dpbusd_epi32(sum, levels[v][term], numbers);
              }
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        const __m512 scale = row_scales(rows[v], static_cast<std::size_t>(block) * shape.block_bytes);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          const PackedQuery& q = queries[h * shape.n_blocks + block];
          __m512i sum = sums[h][v][0];
          if constexpr (kSums == 2) sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), sums[h][v][1]);
          const __m512 product = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, _mm512_set1_epi32(q.offset)));
          totals[h][v] = _mm512_fmadd_ps(product, _mm512_mul_ps(scale, _mm512_set1_ps(q.factor)), totals[h][v]);
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const std::int32_t at = first + v * kRows;
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        _mm512_mask_storeu_ps(scores + h * kEntryBlock + at, lanes_before(keys.n - at), totals[h][v]);
      }
    }
  }
}

// Weights as integers: their two bytes, zero after the last up to a multiple of 16, and the factor of the integers.
struct PackedWeights {
  alignas(64) std::uint8_t high[kEntryBlock];
  alignas(64) std::uint8_t low[kEntryBlock];
  float factor;
};

// Packs weights [kHeads][kEntryBlock], n of each head, times the scales of the values. Heads are processed side by
// side, since the maximum over a head's lanes has a long latency.
template <class Format, int kHeads>
inline void pack_weights(const float* weights, const float* scales, std::int32_t n, PackedWeights* out) {
  __m512 most[kHeads], to_integer[kHeads];
  // Neither is set after the last value: the memory there may hold NaN.
  const auto scaled = [&](int h, std::int32_t i) {
    const __mmask16 lanes = lanes_before(n - i);
    return _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, weights + h * kEntryBlock + i),
                         _mm512_maskz_load_ps(lanes, scales + i));
  };
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    most[h] = scaled(h, 0);
    for (std::int32_t i = kRows; i < n; i += kRows) most[h] = _mm512_max_ps(most[h], scaled(h, i));
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    const float max = _mm512_reduce_max_ps(most[h]);
    to_integer[h] = _mm512_set1_ps(max > 0 ? kMaxWeight / max : 0.0F);
    out[h].factor = max / (kMaxWeight * Format::kLevelScale);
  }
  for (std::int32_t i = 0; i < n; i += kRows) {
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const __m512i integers = _mm512_cvtps_epi32(_mm512_mul_ps(scaled(h, i), to_integer[h]));
      const __m128i high = _mm512_cvtepi32_epi8(_mm512_srli_epi32(integers, 8));
      _mm_store_si128(reinterpret_cast<__m128i*>(out[h].high + i), high);
      _mm_store_si128(reinterpret_cast<__m128i*>(out[h].low + i), _mm512_cvtepi32_epi8(integers));
    }
  }
}

inline __m512i four_bytes(const std::uint8_t* bytes) {
  std::int32_t all;
  std::memcpy(&all, bytes, sizeof(all));
  return _mm512_set1_epi32(all);
}

// Adds kPass numbers of the weighted values.
//   at: offset of the chunk in a row; sums: those of the first head, at the first number
template <class Format, int kHeads>
void add_pass(const PackedWeights* weights, std::span<const CodedRows> values, std::size_t at, int pass, Ahead& ahead,
              float* sums, std::ptrdiff_t sums_stride) {
  __m512i acc[kHeads][2][2];  // by half and byte
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) acc[h][0][0] = acc[h][0][1] = acc[h][1][0] = acc[h][1][1] = _mm512_setzero_si512();
  const auto add = [&](const std::byte* a, const std::byte* b, const std::byte* c, const std::byte* d, std::int32_t i) {
    __m512i halves[2];
    Format::value_levels(two_chunks<Format>(a, b), two_chunks<Format>(c, d), pass, halves);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const __m512i high = four_bytes(weights[h].high + i), low = four_bytes(weights[h].low + i);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        acc[h][half][0] = _mm512_dpbusd_epi32(acc[h][half][0], high, halves[half]);
        acc[h][half][1] = _mm512_dpbusd_epi32(acc[h][half][1], low, halves[half]);
      }
    }
  };
  std::int32_t first = 0;  // index of the piece's first entry
  for (const CodedRows& piece : values) {
    const std::byte* row = piece.data + at;
    const std::size_t stride = piece.stride;
    const std::int32_t n = piece.n;
    std::int32_t i = 0;
    for (; i + 8 <= n; i += 8, row += 8 * stride) {
      ahead.fetch();
      add(row, row + stride, row + 2 * stride, row + 3 * stride, first + i);
      add(row + 4 * stride, row + 5 * stride, row + 6 * stride, row + 7 * stride, first + i + 4);
    }
    // The last row stands in for those after it, with weights of 0.
    const auto row_at = [&](std::int32_t j) {
      return piece.data + at + static_cast<std::size_t>(std::min(j, n - 1)) * stride;
    };
    for (; i < n; i += 4) add(row_at(i), row_at(i + 1), row_at(i + 2), row_at(i + 3), first + i);
    first += n;
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    const __m512 factor = _mm512_set1_ps(weights[h].factor);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      float* out = sums + h * sums_stride + 16 * half;
      const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(acc[h][half][0], 8), acc[h][half][1]);
      _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, _mm512_loadu_ps(out)));
    }
  }
}

// Adds a block of the weighted values. weights: those of the first head; scales: those of the block in the n values
template <class Format, int kHeads>
void add_block(const float* weights, const float* scales, std::int32_t n, const CodeShape<Format>& shape,
               std::span<const CodedRows> values, int block, Ahead& ahead, float* sums, std::ptrdiff_t sums_stride) {
  PackedWeights packed[kHeads];
  pack_weights<Format, kHeads>(weights, scales, n, packed);
  float* to = sums + block * shape.block;
  for (int chunk = 0; chunk < shape.n_chunks; ++chunk) {
    for (int pass = 0; pass < Format::kChunk / kPass; ++pass, to += kPass) {
      add_pass<Format, kHeads>(packed, values, shape.at(block, chunk), pass, ahead, to, sums_stride);
    }
  }
}

// Loads the scales of a block of all values. Returns the number of values.
std::int32_t load_scales(std::span<const CodedRows> values, std::size_t at, float* scales) {
  std::int32_t first = 0;
  for (const CodedRows& piece : values) {
    for (std::int32_t i = 0; i < piece.n; i += kRows) {
      const std::byte* rows[kRows];
      row_pointers(piece, i, rows);
      _mm512_storeu_ps(scales + first + i, row_scales(rows, at));
    }
    first += piece.n;
  }
  return first;
}

// Calls f(first head, constant number of heads). with_passes repeats this until all heads are done, in passes of about
// equal size.
template <int kMost = kHeadsAtOnce, class Function>
void with_heads(int n, int first, const Function& f) {
  if constexpr (kMost > 1) {
    if (n < kMost) return with_heads<kMost - 1>(n, first, f);
  }
  f(first, std::integral_constant<int, kMost>());
}

int n_passes(int n_group) { return (n_group + kHeadsAtOnce - 1) / kHeadsAtOnce; }

template <class Function>
void with_passes(int n_group, const Function& f) {
  for (int left = n_passes(n_group), h = 0; left > 0; --left) {
    const int n = (n_group - h) / left;
    with_heads(n, h, f);
    h += n;
  }
}

// Calls f with the format of a type that has products.
template <class Function>
void with_format(EntryType type, const Function& f) {
  if (type == EntryType::kR4) return f(R4());
  if (type == EntryType::kR3) return f(R3());
  assert(type == EntryType::kQ8_0);
  f(Q8());
}

}  // namespace

bool has_code_products(EntryType type, int head_dim) {
  static const bool has_vbmi = __builtin_cpu_supports("avx512vbmi") != 0;
  const bool fits =
      type == EntryType::kQ8_0 ? head_dim % Q8::kChunk == 0 : code_bits(type) > 0 && code_block(head_dim) >= R4::kChunk;
  return fits && has_vbmi && current_int8_unit() == Int8Unit::kAvx512Vnni;
}

std::size_t coded_queries_bytes(int n_group, int head_dim) {
  const int n_blocks = (head_dim + Q8::kChunk - 1) / Q8::kChunk;  // the smallest blocks
  return static_cast<std::size_t>(n_group * n_blocks) * sizeof(PackedQuery);
}

void pack_coded_queries(EntryType type, const float* queries, int n_group, int head_dim, std::byte* out) {
  with_format(type, [&](auto format) {
    using Format = decltype(format);
    const CodeShape<Format> shape(head_dim);
    auto* packed = reinterpret_cast<PackedQuery*>(out);
    for (int i = 0; i < n_group * shape.n_blocks; ++i) {
      pack_query<Format>(queries + i * shape.block, shape.block, packed[i]);
    }
  });
}

void score_codes(EntryType type, const std::byte* queries, int n_group, int head_dim, const CodedRows& keys,
                 Ahead& ahead, float* scores) {
  const auto* packed = reinterpret_cast<const PackedQuery*>(queries);
  with_format(type, [&](auto format) {
    const CodeShape<decltype(format)> shape(head_dim);
    ahead.spread(keys.bytes(), n_passes(n_group) * ((keys.n + kVecs * kRows - 1) / (kVecs * kRows)) * shape.n_blocks *
                                   shape.n_chunks * (kDwords / kDwordsOfAFetch));
    with_passes(n_group, [&](int h, auto heads) {
      score_heads<decltype(format), decltype(heads)::value>(packed + h * shape.n_blocks, shape, keys, ahead,
                                                            scores + h * kEntryBlock);
    });
  });
}

void add_codes(EntryType type, const float* weights, int n_group, int head_dim, std::span<const CodedRows> values,
               Ahead& ahead, float* sums) {
  std::size_t bytes = 0;
  std::int32_t n_steps = 0;
  for (const CodedRows& piece : values) {
    bytes += piece.bytes();
    n_steps += n_passes(n_group) * (head_dim / kPass) * (piece.n / 8);
  }
  // All lines have arrived when the first block is done: a row's lines are read together with it.
  ahead.spread(bytes, std::max(1, n_steps));
  with_format(type, [&](auto format) {
    using Format = decltype(format);
    const CodeShape<Format> shape(head_dim);
    for (int block = 0; block < shape.n_blocks; ++block) {
      alignas(64) float scales[kEntryBlock + kRows];
      const std::int32_t n = load_scales(values, static_cast<std::size_t>(block) * shape.block_bytes, scales);
      with_passes(n_group, [&](int h, auto heads) {
        add_block<Format, decltype(heads)::value>(weights + h * kEntryBlock, scales, n, shape, values, block, ahead,
                                                  sums + h * head_dim, head_dim);
      });
    }
  });
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool has_code_products(EntryType, int) { return false; }
std::size_t coded_queries_bytes(int, int) { return 0; }
void pack_coded_queries(EntryType, const float*, int, int, std::byte*) {}
void score_codes(EntryType, const std::byte*, int, int, const CodedRows&, Ahead&, float*) {}
void add_codes(EntryType, const float*, int, int, std::span<const CodedRows>, Ahead&, float*) {}

}  // namespace winnow::kernels
#endif
