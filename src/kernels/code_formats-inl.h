// The types of entries that code_products.cc multiplies, r4 and q8_0: how their rows lie, what their codes become as
// bytes, and a query as it goes with them. Behind AVX-512's attributes.
#pragma once

namespace winnow::kernels {
namespace {

constexpr int kLevelOffset = 128;  // of keys, whose levels are taken without a sign

constexpr int kChunkBytes = 32;           // of a row, which are read together
constexpr int kDwords = kChunkBytes / 4;  // of a chunk
constexpr std::size_t kScaleBytes = 2;    // before a block's codes
constexpr int kMaxBlockDwords = 16;
constexpr int kPass = 32;  // numbers of a row's chunk whose values are added together, in halves

struct alignas(64) Bytes64 {
  std::uint8_t bytes[64];
  __m512i load() const { return _mm512_load_si512(bytes); }
};

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

// Of a head's block: what the integers are multiplied by, what is subtracted before, and two terms that go with each
// four bytes of codes.
struct PackedQuery {
  float factor;
  std::int32_t offset;
  std::int32_t terms[2][kMaxBlockDwords];
};

// Codes of 4 bits. Of a query the terms are the numbers for their low halves and those for the high ones.
class R4 {
 public:
  // The codebook's levels times this, to the nearest integers: of the factors that leave room for a sign in a byte, the
  // one that leaves the least error under a normal distribution.
  static constexpr float kLevelScale = 38.2128F;
  static constexpr float kMaxQuery = 127.0F;
  static constexpr int kChunk = 2 * kChunkBytes;  // numbers
  static constexpr int kSums = 1;                 // of both terms together

  static int block(int head_dim) { return code_block(head_dim); }

  // integers: of a block, the codes of whose byte i are those of number i / 16 * 32 + i % 16 and the 16th behind it
  static void split(const std::int32_t* integers, int block, std::int8_t (&terms)[2][4 * kMaxBlockDwords]) {
    for (int i = 0; i < block / 2; ++i) {
      const int number = i / 16 * kCodeGroup + i % 16;
      terms[0][i] = static_cast<std::int8_t>(integers[number]);
      terms[1][i] = static_cast<std::int8_t>(integers[number + 16]);
    }
  }
  // levels[i]: what term i is multiplied with
  static void key_levels(__m512i codes, __m512i (&levels)[2]) {
    levels[0] = _mm512_permutexvar_epi8(codes, kKeyTable.load());
    levels[1] = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes, 4), kKeyTable.load());
  }
  // Of four rows' chunks: the halves of pass `pass`, four rows to a dword.
  static void value_levels(__m512i ab, __m512i cd, int pass, __m512i (&halves)[2]) {
    const __m512i codes = _mm512_permutex2var_epi8(ab, kInterleavings[pass].load(), cd);
    halves[0] = _mm512_permutexvar_epi8(codes, kValueTable.load());
    halves[1] = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes, 4), kValueTable.load());
  }

 private:
  static constexpr std::int8_t kLevels[16] = {5,  15,  25,  36,  48,  62,  79,  104,  //
                                              -5, -15, -25, -36, -48, -62, -79, -104};
  // The levels of all codes, four times: of an index only six bits are read, so what is above a code's four does not
  // matter.
  static constexpr Bytes64 table_of(int offset) {
    Bytes64 table{};
    for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(kLevels[i % 16] + offset);
    return table;
  }
  static const Bytes64 kKeyTable, kValueTable;
};
constexpr Bytes64 R4::kKeyTable = table_of(kLevelOffset);
constexpr Bytes64 R4::kValueTable = table_of(0);

// Bytes. Of a query the terms are the two bytes of 16 bits.
struct Q8 {
  static constexpr float kLevelScale = 1.0F;
  static constexpr float kMaxQuery = 32639.0F;  // 256 * 127 + 127
  static constexpr int kChunk = kChunkBytes;
  static constexpr int kSums = 2;  // of the high bytes, of the low ones

  static int block(int /*head_dim*/) { return kChunk; }

  static void split(const std::int32_t* integers, int block, std::int8_t (&terms)[2][4 * kMaxBlockDwords]) {
    for (int i = 0; i < block; ++i) {
      const auto low = static_cast<std::int8_t>(integers[i]);
      terms[0][i] = static_cast<std::int8_t>((integers[i] - low) / 256);
      terms[1][i] = low;
    }
  }
  static void key_levels(__m512i bytes, __m512i (&levels)[2]) {
    levels[0] = levels[1] = _mm512_xor_si512(bytes, _mm512_set1_epi8(static_cast<char>(kLevelOffset)));
  }
  static void value_levels(__m512i ab, __m512i cd, int /*pass*/, __m512i (&halves)[2]) {
    halves[0] = _mm512_permutex2var_epi8(ab, kInterleavings[0].load(), cd);
    halves[1] = _mm512_permutex2var_epi8(ab, kInterleavings[1].load(), cd);
  }
};

template <class Format>
struct CodeShape {
  explicit CodeShape(int head_dim)
      : block(Format::block(head_dim)),
        n_blocks(head_dim / block),
        n_chunks(block / Format::kChunk),
        block_bytes(kScaleBytes + static_cast<std::size_t>(n_chunks * kChunkBytes)) {}
  // Where a block's chunk is in a row.
  std::size_t at(int in_block, int chunk) const {
    return static_cast<std::size_t>(in_block) * block_bytes + kScaleBytes +
           static_cast<std::size_t>(chunk * kChunkBytes);
  }
  int block, n_blocks, n_chunks;  // chunks of a block
  std::size_t block_bytes;
};

template <class Format>
void pack_query(const float* q, int block, PackedQuery& out) {
  float high = 0;
  for (int i = 0; i < block; ++i) high = std::max(high, std::abs(q[i]));
  const float to_integer = high > 0 ? Format::kMaxQuery / high : 0.0F;
  std::int32_t integers[8 * kMaxBlockDwords];
  std::int32_t sum = 0;
  for (int i = 0; i < block; i += 16) {
    const __m512i some = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + i), _mm512_set1_ps(to_integer)));
    _mm512_storeu_si512(integers + i, some);
    sum += _mm512_reduce_add_epi32(some);
  }
  out.factor = high / (Format::kMaxQuery * Format::kLevelScale);
  out.offset = kLevelOffset * sum;
  std::int8_t terms[2][4 * kMaxBlockDwords];
  Format::split(integers, block, terms);
  std::memcpy(out.terms, terms, sizeof(terms));
}

}  // namespace
}  // namespace winnow::kernels
