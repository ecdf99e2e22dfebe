#include "kernels/code_products.h"

#include <hwy/base.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/isa.h"
#include "kernels/rotated_codes.h"
#include "kernels/tiling.h"
#include "winnow/entries.h"

#if HWY_ARCH_X86_64

#include "kernels/x86_vectors-inl.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vnni,avx512vbmi,avx2,fma,f16c")

namespace winnow::kernels {
namespace {

// The codebook times kLevelScale, to the nearest integers: of the factors that leave room for a sign in a byte, the one
// that leaves the least error under a normal distribution.
constexpr float kLevelScale = 38.2128F;
constexpr std::int8_t kLevels[16] = {5,  15,  25,  36,  48,  62,  79,  104,  //
                                     -5, -15, -25, -36, -48, -62, -79, -104};
constexpr int kLevelOffset = 128;  // of keys, whose levels are taken without a sign
constexpr float kMaxQuery = 127.0F;
constexpr float kMaxWeight = 65535.0F;

constexpr int kChunk = 64;                // numbers of a row whose codes are read together
constexpr int kChunkBytes = kChunk / 2;   // of codes
constexpr int kDwords = kChunkBytes / 4;  // of codes: 8 numbers each
constexpr int kRows = 16;                 // keys that fill a vector's lanes
constexpr int kVecs = 2;                  // of keys, for which a query is read once
constexpr int kHeadsAtOnce = 6;           // what the registers hold sums for
constexpr std::size_t kScaleBytes = 2;    // before a block's codes
constexpr int kMaxBlock = 128;

struct CodeShape {
  explicit CodeShape(int head_dim)
      : block(code_block(head_dim)),
        n_blocks(head_dim / block),
        n_chunks(block / kChunk),
        block_bytes(kScaleBytes + static_cast<std::size_t>(block) / 2) {}
  int block, n_blocks, n_chunks;  // chunks of a block
  std::size_t block_bytes;
};

struct alignas(64) Bytes64 {
  std::uint8_t bytes[64];
  __m512i load() const { return _mm512_load_si512(bytes); }
};

// The levels of all codes, four times: of an index only six bits are read, so what is above a code's four does not
// matter.
constexpr Bytes64 table_of(int offset) {
  Bytes64 table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(kLevels[i % 16] + offset);
  return table;
}
constexpr Bytes64 kKeyTable = table_of(kLevelOffset);
constexpr Bytes64 kValueTable = table_of(0);

// Of one head and block: what the integers are multiplied by, what is subtracted before, and the bytes that go with
// each four bytes of codes: those of their low halves, then of the high ones.
struct PackedQuery {
  float factor;
  std::int32_t offset;
  std::int32_t low_half[kMaxBlock / 8], high_half[kMaxBlock / 8];
};

// The number whose code lies in the low half of byte i of a block's codes; that of the high half is 16 further.
constexpr int number_of_byte(int i) { return i / 16 * kCodeGroup + i % 16; }

void pack_query(const float* q, const CodeShape& shape, PackedQuery& out) {
  float high = 0;
  for (int i = 0; i < shape.block; ++i) high = std::max(high, std::abs(q[i]));
  const float to_integer = high > 0 ? kMaxQuery / high : 0.0F;
  std::int32_t integers[kMaxBlock];
  std::int32_t sum = 0;
  for (int i = 0; i < shape.block; i += 16) {
    const __m512i some = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + i), _mm512_set1_ps(to_integer)));
    _mm512_storeu_si512(integers + i, some);
    sum += _mm512_reduce_add_epi32(some);
  }
  out.factor = high / (kMaxQuery * kLevelScale);
  out.offset = kLevelOffset * sum;
  std::int8_t low_half[kMaxBlock / 2], high_half[kMaxBlock / 2];
  for (int i = 0; i < shape.block / 2; ++i) {
    low_half[i] = static_cast<std::int8_t>(integers[number_of_byte(i)]);
    high_half[i] = static_cast<std::int8_t>(integers[number_of_byte(i) + 16]);
  }
  std::memcpy(out.low_half, low_half, sizeof(low_half));
  std::memcpy(out.high_half, high_half, sizeof(high_half));
}

// The scales of a block of 16 rows.
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

// Rows [first, first + 16), the last one again for those behind it.
inline void row_pointers(const CodedRows& rows, std::int32_t first, const std::byte** out) {
  const std::byte* at = rows.data + static_cast<std::size_t>(first) * rows.stride;
  const std::byte* last = rows.data + static_cast<std::size_t>(rows.n - 1) * rows.stride;
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) out[i] = std::min(at + static_cast<std::size_t>(i) * rows.stride, last);
}

inline __mmask16 lanes_before(std::int32_t n) {
  return static_cast<__mmask16>(n >= kRows ? 0xFFFF : n <= 0 ? 0 : (1U << n) - 1);
}

__m512i two_halves(const std::byte* low, const std::byte* high) {
  const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low));
  return _mm512_inserti64x4(_mm512_castsi256_si512(first), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)),
                            1);
}

// Columns of dwords of four vectors' rows, in every 128-bit lane.
inline void transpose_lanes(__m512i* v) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), e = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, e);
  v[3] = _mm512_unpackhi_epi64(b, e);
}

// 16 rows of 32 bytes -> out[t]: dword t of every row.
inline void transpose_rows(const std::byte* const* rows, std::size_t at, __m512i* out) {
  __m512i a[4], b[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    a[i] = two_halves(rows[i] + at, rows[4 + i] + at);
    b[i] = two_halves(rows[8 + i] + at, rows[12 + i] + at);
  }
  transpose_lanes(a);
  transpose_lanes(b);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = _mm512_shuffle_i32x4(a[i], b[i], 0x88);
    out[4 + i] = _mm512_shuffle_i32x4(a[i], b[i], 0xDD);
  }
}

// queries: of the first head, n_blocks to a head
template <int kHeads>
void score_heads(const PackedQuery* queries, const CodeShape& shape, const CodedRows& keys, Ahead& ahead,
                 float* scores) {
  const __m512i table = kKeyTable.load();
  for (std::int32_t first = 0; first < keys.n; first += kVecs * kRows) {
    ahead.fetch();
    const std::byte* rows[kVecs][kRows];
    __m512 totals[kHeads][kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      row_pointers(keys, first + v * kRows, rows[v]);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) totals[h][v] = _mm512_setzero_ps();
    }
    for (int block = 0; block < shape.n_blocks; ++block) {
      const std::size_t block_at = static_cast<std::size_t>(block) * shape.block_bytes;
      __m512i sums[kHeads][kVecs];
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) sums[h][0] = sums[h][1] = _mm512_setzero_si512();
      for (int chunk = 0; chunk < shape.n_chunks; ++chunk) {
        __m512i codes[kVecs][kDwords];
        for (int v = 0; v < kVecs; ++v) {
          transpose_rows(rows[v], block_at + kScaleBytes + static_cast<std::size_t>(chunk * kChunkBytes), codes[v]);
        }
#pragma GCC unroll 8
        for (int t = 0; t < kDwords; ++t) {
          __m512i low[kVecs], high[kVecs];
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) {
            low[v] = _mm512_permutexvar_epi8(codes[v][t], table);
            high[v] = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes[v][t], 4), table);
          }
#pragma GCC unroll 8
          for (int h = 0; h < kHeads; ++h) {
            const PackedQuery& q = queries[h * shape.n_blocks + block];
            const __m512i of_low = _mm512_set1_epi32(q.low_half[chunk * kDwords + t]);
            const __m512i of_high = _mm512_set1_epi32(q.high_half[chunk * kDwords + t]);
#pragma GCC unroll 2
            for (int v = 0; v < kVecs; ++v) {
              sums[h][v] = _mm512_dpbusd_epi32(sums[h][v], low[v], of_low);
              sums[h][v] = _mm512_dpbusd_epi32(sums[h][v], high[v], of_high);
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        const __m512 scale = row_scales(rows[v], block_at);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          const PackedQuery& q = queries[h * shape.n_blocks + block];
          const __m512 product = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[h][v], _mm512_set1_epi32(q.offset)));
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

// Weights as integers: their two bytes, zero behind the last up to a multiple of 16, and what the integers are
// multiplied by.
struct PackedWeights {
  alignas(64) std::uint8_t high[kEntryBlock];
  alignas(64) std::uint8_t low[kEntryBlock];
  float factor;
};

// Of weights [kHeads][kEntryBlock], n of each, times the scales of the values. Heads side by side: a maximum has to
// wait for its lanes.
template <int kHeads>
inline void pack_weights(const float* weights, const float* scales, std::int32_t n, PackedWeights* out) {
  __m512 most[kHeads], to_integer[kHeads];
  const auto scaled = [&](int h, std::int32_t i) {
    return _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes_before(n - i), weights + h * kEntryBlock + i),
                         _mm512_load_ps(scales + i));
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
    out[h].factor = max / (kMaxWeight * kLevelScale);
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

// Bytes [16 part, 16 part + 16) of four rows of 32, two rows to a vector: byte p of every row in dword p.
constexpr Bytes64 interleaving(int part) {
  Bytes64 index{};
  for (int p = 0; p < 16; ++p) {
    for (int row = 0; row < 4; ++row) {
      index.bytes[4 * p + row] = static_cast<std::uint8_t>(row / 2 * 64 + row % 2 * kChunkBytes + 16 * part + p);
    }
  }
  return index;
}
constexpr Bytes64 kInterleavings[2] = {interleaving(0), interleaving(1)};

inline __m512i four_bytes(const std::uint8_t* bytes) {
  std::int32_t all;
  std::memcpy(&all, bytes, sizeof(all));
  return _mm512_set1_epi32(all);
}

// Half a chunk of the values: 16 numbers of the low halves and the 16 that follow of the high ones.
//   codes: of the first row; sums: of the first head, at the first number
template <int kHeads>
void add_part(const PackedWeights* weights, const CodedRows& values, std::size_t at, const Bytes64& interleaving,
              Ahead& ahead, float* sums, std::ptrdiff_t sums_stride) {
  const __m512i table = kValueTable.load(), interleave = interleaving.load();
  __m512i acc[kHeads][2][2];  // by half and byte
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) acc[h][0][0] = acc[h][0][1] = acc[h][1][0] = acc[h][1][1] = _mm512_setzero_si512();
  const auto add = [&](const std::byte* a, const std::byte* b, const std::byte* c, const std::byte* d, std::int32_t i) {
    const __m512i codes = _mm512_permutex2var_epi8(two_halves(a, b), interleave, two_halves(c, d));
    const __m512i low_half = _mm512_permutexvar_epi8(codes, table);
    const __m512i high_half = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes, 4), table);
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const __m512i high = four_bytes(weights[h].high + i), low = four_bytes(weights[h].low + i);
      acc[h][0][0] = _mm512_dpbusd_epi32(acc[h][0][0], high, low_half);
      acc[h][0][1] = _mm512_dpbusd_epi32(acc[h][0][1], low, low_half);
      acc[h][1][0] = _mm512_dpbusd_epi32(acc[h][1][0], high, high_half);
      acc[h][1][1] = _mm512_dpbusd_epi32(acc[h][1][1], low, high_half);
    }
  };
  const std::byte* row = values.data + at;
  const std::size_t stride = values.stride;
  std::int32_t i = 0;
  for (; i + 8 <= values.n; i += 8, row += 8 * stride) {
    ahead.fetch();
    add(row, row + stride, row + 2 * stride, row + 3 * stride, i);
    add(row + 4 * stride, row + 5 * stride, row + 6 * stride, row + 7 * stride, i + 4);
  }
  for (const std::byte* last = row + static_cast<std::size_t>(values.n - 1 - i) * stride; i < values.n; i += 4) {
    add(row, std::min(row + stride, last), std::min(row + 2 * stride, last), std::min(row + 3 * stride, last), i);
    row += 4 * stride;
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

// weights: of the first head; scales: of the block
template <int kHeads>
void add_block(const float* weights, const float* scales, const CodeShape& shape, const CodedRows& values, int block,
               Ahead& ahead, float* sums, std::ptrdiff_t sums_stride) {
  PackedWeights packed[kHeads];
  pack_weights<kHeads>(weights, scales, values.n, packed);
  for (int chunk = 0; chunk < shape.n_chunks; ++chunk) {
    const std::size_t at = static_cast<std::size_t>(block) * shape.block_bytes + kScaleBytes +
                           static_cast<std::size_t>(chunk * kChunkBytes);
    for (int part = 0; part < 2; ++part) {
      add_part<kHeads>(packed, values, at, kInterleavings[part], ahead,
                       sums + block * shape.block + chunk * kChunk + part * kCodeGroup, sums_stride);
    }
  }
}

// Calls f(first head, constant number of heads); with_passes until all heads are through, in passes of about equal
// size.
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

}  // namespace

bool has_code_products(int head_dim) {
  static const bool has_vbmi = __builtin_cpu_supports("avx512vbmi") != 0;
  return has_vbmi && code_block(head_dim) >= kChunk && current_int8_unit() == Int8Unit::kAvx512Vnni;
}

std::size_t coded_queries_bytes(int n_group, int head_dim) {
  return static_cast<std::size_t>(n_group * (head_dim / code_block(head_dim))) * sizeof(PackedQuery);
}

void pack_coded_queries(const float* queries, int n_group, int head_dim, std::byte* out) {
  const CodeShape shape(head_dim);
  auto* packed = reinterpret_cast<PackedQuery*>(out);
  for (int i = 0; i < n_group * shape.n_blocks; ++i) pack_query(queries + i * shape.block, shape, packed[i]);
}

void score_codes(const std::byte* queries, int n_group, int head_dim, const CodedRows& keys, Ahead& ahead,
                 float* scores) {
  const CodeShape shape(head_dim);
  const auto* packed = reinterpret_cast<const PackedQuery*>(queries);
  ahead.spread(n_passes(n_group) * std::max(1, (keys.n + kVecs * kRows - 1) / (kVecs * kRows)));
  with_passes(n_group, [&](int h, auto heads) {
    score_heads<decltype(heads)::value>(packed + h * shape.n_blocks, shape, keys, ahead, scores + h * kEntryBlock);
  });
}

void add_codes(const float* weights, int n_group, int head_dim, const CodedRows& values, Ahead& ahead, float* sums) {
  const CodeShape shape(head_dim);
  ahead.spread(n_passes(n_group) * shape.n_blocks * shape.n_chunks * 2 * std::max(1, values.n / 8));
  for (int block = 0; block < shape.n_blocks; ++block) {
    alignas(64) float scales[kEntryBlock];
    for (std::int32_t i = 0; i < values.n; i += kRows) {
      const std::byte* rows[kRows];
      row_pointers(values, i, rows);
      _mm512_store_ps(scales + i, row_scales(rows, static_cast<std::size_t>(block) * shape.block_bytes));
    }
    with_passes(n_group, [&](int h, auto heads) {
      add_block<decltype(heads)::value>(weights + h * kEntryBlock, scales, shape, values, block, ahead,
                                        sums + h * head_dim, head_dim);
    });
  }
}

}  // namespace winnow::kernels

HWY_POP_ATTRIBUTES

#else  // !HWY_ARCH_X86_64

namespace winnow::kernels {

bool has_code_products(int) { return false; }
std::size_t coded_queries_bytes(int, int) { return 0; }
void pack_coded_queries(const float*, int, int, std::byte*) {}
void score_codes(const std::byte*, int, int, const CodedRows&, Ahead&, float*) {}
void add_codes(const float*, int, int, const CodedRows&, Ahead&, float*) {}

}  // namespace winnow::kernels
#endif
