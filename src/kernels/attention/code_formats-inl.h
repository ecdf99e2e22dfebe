// The entry types that code_products.cc multiplies, r4, r3 and q8_0: the layout of their rows, their codes as bytes,
// and queries packed to match. Included after AVX-512's attributes are pushed.
#pragma once

namespace winnow::kernels {
namespace {

constexpr int kLevelOffset = 128;  // added to the levels of keys, which are taken as unsigned bytes

constexpr int kMaxChunkBytes = 32;           // bytes of a row that are read together
constexpr int kDwords = kMaxChunkBytes / 4;  // of a chunk
constexpr std::size_t kScaleBytes = 2;       // bytes of the scale before a block's codes
constexpr int kTerms = 2;                    // parts of a query that go with a dword's codes
constexpr int kMaxBlockChunks = 2;
constexpr int kPass = 32;  // numbers of a row's chunk whose values are added together, in halves

struct alignas(64) Bytes64 {
  std::uint8_t bytes[64];
  __m512i load() const { return _mm512_load_si512(bytes); }
};

// Returns the index of a byte in the chunks of four rows, two rows to a vector.
constexpr std::uint8_t row_byte(int row, int byte) {
  return static_cast<std::uint8_t>(row / 2 * 64 + row % 2 * kMaxChunkBytes + byte);
}
// Returns the permutation that takes bytes [16 part, 16 part + 16) of four rows of 32 and puts byte p of every row in
// dword p.
constexpr Bytes64 interleaving(int part) {
  Bytes64 index{};
  for (int p = 0; p < 16; ++p) {
    for (int row = 0; row < 4; ++row) index.bytes[4 * p + row] = row_byte(row, 16 * part + p);
  }
  return index;
}
constexpr Bytes64 kInterleavings[2] = {interleaving(0), interleaving(1)};

// A block of one query head's numbers as integers: the factor of their products, the offset that is subtracted from
// these first, and the terms that go with the codes. A format decides which eighth of a chunk's codes goes with each
// step.
struct PackedQuery {
  float factor;
  std::int32_t offset;
  std::int32_t terms[kMaxBlockChunks][kDwords][kTerms];
};

// Returns the levels of codes as bytes, repeated to fill 64: six bits of an index are read, so bits above a code's own
// do not matter. Levels of values are signed; kLevelOffset is added to those of keys.
template <std::size_t kLevels>
constexpr Bytes64 table_of(const std::int8_t (&levels)[kLevels], int offset) {
  Bytes64 table{};
  for (std::size_t i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(levels[i % kLevels] + offset);
  return table;
}

// Codes of 4 bits. A query's terms are its numbers for the codes' low halves and for the high ones.
class R4 {
 public:
  // The codebook's levels times this factor are rounded to the nearest integers. It has the least error under a normal
  // distribution among the factors whose levels fit in signed bytes.
  static constexpr float kLevelScale = 38.2128F;
  static constexpr float kMaxQuery = 127.0F;
  static constexpr int kChunk = 64;  // numbers
  static constexpr int kChunkBytes = 32;
  static constexpr int kSums = 1;  // sums that the two terms add up to

  static int block(int head_dim) { return code_block(head_dim); }

  // Splits a block's integers into terms. Byte i of the block's codes has the codes of numbers n = i / 16 * 32 + i % 16
  // and n + 16.
  static void split(const std::int32_t* integers, int block, std::int8_t* terms) {
    for (int i = 0; i < block / 2; ++i) {
      const int number = i / 16 * kCodeGroup + i % 16;
      std::int8_t* of_dword = terms + i / 4 * 4 * kTerms + i % 4;
      of_dword[0] = static_cast<std::int8_t>(integers[number]);
      of_dword[4] = static_cast<std::int8_t>(integers[number + 16]);
    }
  }
  // Computes the key levels that the terms of step t are multiplied with. codes: all dwords of a chunk.
  static void key_levels(const __m512i* codes, int t, __m512i (&levels)[kTerms]) {
    levels[0] = _mm512_permutexvar_epi8(codes[t], kKeyTable.load());
    levels[1] = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes[t], 4), kKeyTable.load());
  }
  // Computes the value levels of pass `pass` of four rows' chunks, in halves, four rows to a dword.
  static void value_levels(__m512i ab, __m512i cd, int pass, __m512i (&halves)[2]) {
    const __m512i codes = _mm512_permutex2var_epi8(ab, kInterleavings[pass].load(), cd);
    halves[0] = _mm512_permutexvar_epi8(codes, kValueTable.load());
    halves[1] = _mm512_permutexvar_epi8(_mm512_srli_epi32(codes, 4), kValueTable.load());
  }

 private:
  static constexpr std::int8_t kLevels[16] = {5,  15,  25,  36,  48,  62,  79,  104,  //
                                              -5, -15, -25, -36, -48, -62, -79, -104};
  static constexpr Bytes64 kKeyTable = table_of(kLevels, kLevelOffset), kValueTable = table_of(kLevels, 0);
};

// Codes of 3 bits, eight in the lower bytes of a dword and eight more in the highest bytes of three dwords
// (rotated_codes.h). A query's terms are its numbers for the first and for the last four of eight codes.
class R3 {
 public:
  static constexpr float kLevelScale = 40.9253F;  // an error of 0.0011, chosen like R4's
  static constexpr float kMaxQuery = 127.0F;
  static constexpr int kChunk = 64;
  static constexpr int kChunkBytes = 24;
  static constexpr int kSums = 1;

  static int block(int head_dim) { return code_block(head_dim); }

  static void split(const std::int32_t* integers, int block, std::int8_t* terms) {
    for (int i = 0; i < block; ++i) terms[i] = static_cast<std::int8_t>(integers[i]);
  }
  static void key_levels(const __m512i* codes, int t, __m512i (&levels)[kTerms]) {
    const __m512i* group = codes + t / 4 * 3;
    const __m512i eight = t % 4 < 3 ? group[t % 4] : last_eight(group);
#pragma GCC unroll 2
    for (int term = 0; term < kTerms; ++term) {
      const __m512i four = _mm512_multishift_epi64_epi8(kKeyShifts[term].load(), eight);
      levels[term] = _mm512_permutexvar_epi8(four, kKeyTable.load());
    }
  }
  static void value_levels(__m512i ab, __m512i cd, int pass, __m512i (&halves)[2]) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i pairs = _mm512_permutex2var_epi8(ab, kPairs[pass][half].load(), cd);
      const __m512i codes = _mm512_multishift_epi64_epi8(kPairShifts.load(), pairs);
      halves[half] = _mm512_permutexvar_epi8(codes, kValueTable.load());
    }
  }

 private:
  static constexpr std::int8_t kLevels[8] = {10, 31, 55, 88, -10, -31, -55, -88};
  static constexpr Bytes64 kKeyTable = table_of(kLevels, kLevelOffset), kValueTable = table_of(kLevels, 0);

  // Returns the eight codes in the highest bytes of a group's dwords.
  static __m512i last_eight(const __m512i* group) {
    constexpr int kSecondWhereFirst = 0xCA;
    const __m512i two = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFF), _mm512_srli_epi32(group[0], 24),
                                                  _mm512_srli_epi32(group[1], 16), kSecondWhereFirst);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFFFF), two, _mm512_srli_epi32(group[2], 8), kSecondWhereFirst);
  }

  // Returns the bits at which four codes begin in the two dwords of eight bytes.
  static constexpr Bytes64 key_shifts(int term) {
    Bytes64 shifts{};
    for (int i = 0; i < 64; ++i) shifts.bytes[i] = static_cast<std::uint8_t>(i % 8 / 4 * 32 + 12 * term + i % 4 * 3);
    return shifts;
  }
  // Returns the permutation that takes, for numbers 16 half to 16 half + 15 of group `pass`, the two bytes of every row
  // with the two codes from number 2 p on to qword p.
  static constexpr Bytes64 pairs(int pass, int half) {
    Bytes64 index{};
    for (int p = 0; p < 8; ++p) {
      const int eight = 2 * half + p / 4;
      for (int row = 0; row < 4; ++row) {
        for (int i = 0; i < 2; ++i) {
          const int byte = std::min(p % 4 * 6 / 8 + i, 2);  // of the 24 bits
          index.bytes[8 * p + 2 * row + i] = row_byte(row, 12 * pass + (eight < 3 ? 4 * eight + byte : 4 * byte + 3));
        }
      }
    }
    return index;
  }
  // Returns the shifts that put one code of every row into each dword.
  static constexpr Bytes64 pair_shifts() {
    Bytes64 shifts{};
    for (int i = 0; i < 64; ++i) {
      const int p = i / 8, code = i % 8 / 4, row = i % 4;
      shifts.bytes[i] = static_cast<std::uint8_t>(16 * row + p % 4 * 6 % 8 + 3 * code);
    }
    return shifts;
  }
  static const Bytes64 kKeyShifts[2], kPairs[2][2], kPairShifts;
};
constexpr Bytes64 R3::kKeyShifts[2] = {key_shifts(0), key_shifts(1)};
constexpr Bytes64 R3::kPairs[2][2] = {{pairs(0, 0), pairs(0, 1)}, {pairs(1, 0), pairs(1, 1)}};
constexpr Bytes64 R3::kPairShifts = pair_shifts();

// Codes of 8 bits. A query's terms are the two bytes of its 16-bit numbers.
struct Q8 {
  static constexpr float kLevelScale = 1.0F;
  static constexpr float kMaxQuery = 32639.0F;  // 256 * 127 + 127
  static constexpr int kChunk = 32;
  static constexpr int kChunkBytes = 32;
  static constexpr int kSums = 2;  // one of the high bytes, one of the low ones

  static int block(int /*head_dim*/) { return kChunk; }

  static void split(const std::int32_t* integers, int block, std::int8_t* terms) {
    for (int i = 0; i < block; ++i) {
      const auto low = static_cast<std::int8_t>(integers[i]);
      std::int8_t* of_dword = terms + i / 4 * 4 * kTerms + i % 4;
      of_dword[0] = static_cast<std::int8_t>((integers[i] - low) / 256);
      of_dword[4] = low;
    }
  }
  static void key_levels(const __m512i* codes, int t, __m512i (&levels)[kTerms]) {
    levels[0] = levels[1] = _mm512_xor_si512(codes[t], _mm512_set1_epi8(static_cast<char>(kLevelOffset)));
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
        block_bytes(kScaleBytes + static_cast<std::size_t>(n_chunks * Format::kChunkBytes)) {}
  // Returns the offset of a block's chunk in a row.
  std::size_t at(int in_block, int chunk) const {
    return static_cast<std::size_t>(in_block) * block_bytes + kScaleBytes +
           static_cast<std::size_t>(chunk * Format::kChunkBytes);
  }
  int block, n_blocks, n_chunks;  // chunks of a block
  std::size_t block_bytes;
};

// Packs a block of a query for products with the format's codes.
template <class Format>
void pack_query(const float* q, int block, PackedQuery& out) {
  float high = 0;
  for (int i = 0; i < block; ++i) high = std::max(high, std::abs(q[i]));
  const float to_integer = high > 0 ? Format::kMaxQuery / high : 0.0F;
  std::int32_t integers[kMaxBlockChunks * Format::kChunk];
  std::int32_t sum = 0;
  for (int i = 0; i < block; i += 16) {
    const __m512i some = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + i), _mm512_set1_ps(to_integer)));
    _mm512_storeu_si512(integers + i, some);
    sum += _mm512_reduce_add_epi32(some);
  }
  out.factor = high / (Format::kMaxQuery * Format::kLevelScale);
  out.offset = kLevelOffset * sum;
  std::int8_t terms[sizeof(out.terms)];
  Format::split(integers, block, terms);
  std::memcpy(out.terms, terms, sizeof(terms));
}

}  // namespace
}  // namespace winnow::kernels
