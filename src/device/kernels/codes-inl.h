// Rows of codes, as float16 numbers. A row consists of blocks: a scale (float16), then the block's codes, packed as on
// the processor (kernels/entries/rotated_codes.h; ggml's q8_0 and q4_0). Rows begin at even addresses.
//
// Codes are turned into levels in registers: a byte permutation looks up the low and the high bytes of four float16
// levels at once, by four indices of three bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"
#include "kernels/entries/rotated_codes.h"

namespace winnow::device {

// The type of the rows at an address of PageRows, which is kF32 where they are floats; and their address.
WINNOW_DEVICE EntryType code_type(std::uint32_t low_word_of_address) {
  return static_cast<EntryType>(low_word_of_address & kRowTypeBits);
}
WINNOW_DEVICE std::uint32_t without_row_type(std::uint32_t low_word_of_address) {
  return low_word_of_address & ~static_cast<std::uint32_t>(kRowTypeBits);
}

// Returns whether a type's rows are rotated before they are coded.
WINNOW_DEVICE bool is_rotated(EntryType type) { return type == EntryType::kR4 || type == EntryType::kR3; }

// Returns the numbers that share a scale in rotated rows, and are rotated together: kernels::code_block.
WINNOW_DEVICE int rotated_block(int dim) { return simt::min(dim & -dim, 128); }

// The layout of a row of codes.
struct CodedRow {
  int block;        // numbers
  int block_bytes;  // of the scale and the codes
  int bytes;        // of the row

  WINNOW_DEVICE CodedRow(EntryType type, int dim) {
    const int bits = type == EntryType::kQ8_0 ? 8 : type == EntryType::kR3 ? 3 : 4;
    block = is_rotated(type) ? rotated_block(dim) : 32;
    block_bytes = 2 + block * bits / 8;
    bytes = dim / block * block_bytes;
  }
};

namespace codes {

// A number's bits in float16, rounded to nearest; for results that are normal.
constexpr std::uint32_t half_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t magnitude = (bits & 0x7FFFFFFFU) - (112U << 23U);
  return sign | (magnitude + 0xFFFU + (magnitude >> 13U & 1U)) >> 13U;
}

// Returns byte `byte` of the float16 bits of four levels, in a word.
constexpr std::uint32_t level_bytes(int bits, int first, unsigned byte) {
  const float(&levels)[16] = bits == 4 ? kernels::kLevels4 : kernels::kLevels3;
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= (half_bits(levels[first + i]) >> 8 * byte & 0xFFU) << (8 * i);
  return word;
}

// The low and the high bytes of eight levels: of r4's positive ones, or of all of r3's. nvcc takes scalars that were
// computed beforehand.
template <int kBits>
struct LevelTable {
  static constexpr std::uint32_t kLow0 = level_bytes(kBits, 0, 0), kLow1 = level_bytes(kBits, 4, 0);
  static constexpr std::uint32_t kHigh0 = level_bytes(kBits, 0, 1), kHigh1 = level_bytes(kBits, 4, 1);
};

// Looks four levels up by the indices in a selector, one in each of its four hexadecimal digits. `signs` has the signs
// of the four levels in bit 7 of each byte.
template <int kBits>
WINNOW_DEVICE void look_up(std::uint32_t selector, std::uint32_t signs, std::uint32_t (&two)[2]) {
  using Table = LevelTable<kBits>;
  const std::uint32_t low = simt::permute_bytes(Table::kLow0, Table::kLow1, selector);
  const std::uint32_t high = simt::permute_bytes(Table::kHigh0, Table::kHigh1, selector) ^ signs;
  two[0] = simt::permute_bytes(low, high, 0x5140U);
  two[1] = simt::permute_bytes(low, high, 0x7362U);
}

// Returns eight bytes at an even address. At most two bytes on either side are read, within the same aligned words.
WINNOW_DEVICE void load_8(const std::byte* from, std::uint32_t (&words)[2]) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const bool is_between = (address & 2U) != 0;
  const auto* aligned = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
  const std::uint32_t first = aligned[0], second = aligned[1], third = aligned[is_between ? 2 : 1];
  const unsigned selector = is_between ? 0x5432U : 0x3210U;
  words[0] = simt::permute_bytes(first, second, selector);
  words[1] = simt::permute_bytes(second, third, selector);
}

// Returns the bytes of `word`, less kOffset each, as four float16 numbers.
template <int kOffset, std::uint32_t kBoth = half_bits(1024.0F + kOffset) * 0x10001U>
WINNOW_DEVICE void whole_numbers(std::uint32_t word, std::uint32_t (&two)[2]) {
  // 0x6400 is 1024, above which float16 numbers are 1 apart.
  constexpr std::uint32_t k1024 = 0x64646464U;
  two[0] = simt::subtract_f16(simt::permute_bytes(word, k1024, 0x4140U), kBoth);
  two[1] = simt::subtract_f16(simt::permute_bytes(word, k1024, 0x4342U), kBoth);
}

// Eight codes of a row as they are loaded, before they become numbers: several loads are issued before the first result
// is used.
struct Eight {
  std::uint32_t words[2];
  std::uint32_t scale;  // float16, twice
};

// How codes of a type are loaded, from number n of a block on, and what levels they stand for.
template <EntryType kType>
struct Code;

template <>
struct Code<EntryType::kQ8_0> {
  WINNOW_DEVICE static void load(const std::byte* codes, int n, int /*block*/, std::uint32_t (&words)[2]) {
    load_8(codes + n, words);
  }
  WINNOW_DEVICE static void levels(std::uint32_t word, std::uint32_t (&two)[2]) {
    whole_numbers<128>(word ^ 0x80808080U, two);
  }
};

// Loads eight codes of 4 bits, each into the low half of a byte. A group of `size` numbers has its first half in the
// low halves of its bytes.
WINNOW_DEVICE void load_halves(const std::byte* codes, int n, int size, std::uint32_t (&words)[2]) {
  const int half = size / 2, in_group = n % size;
  load_8(codes + n / size * half + in_group % half, words);
  WINNOW_UNROLL
  for (std::uint32_t& word : words) word = word >> (in_group < half ? 0U : 4U) & 0x0F0F0F0FU;
}

template <>
struct Code<EntryType::kQ4_0> {
  WINNOW_DEVICE static void load(const std::byte* codes, int n, int /*block*/, std::uint32_t (&words)[2]) {
    load_halves(codes, n, 32, words);
  }
  WINNOW_DEVICE static void levels(std::uint32_t word, std::uint32_t (&two)[2]) { whole_numbers<8>(word, two); }
};

template <>
struct Code<EntryType::kR4> {
  WINNOW_DEVICE static void load(const std::byte* codes, int n, int block, std::uint32_t (&words)[2]) {
    load_halves(codes, n, simt::min(block, kernels::kCodeGroup), words);
  }
  WINNOW_DEVICE static void levels(std::uint32_t word, std::uint32_t (&two)[2]) {
    const std::uint32_t index = word & 0x07070707U;
    const std::uint32_t selector = simt::permute_bytes(index | index >> 4U, 0, 0x4420U);
    look_up<4>(selector, (word & 0x08080808U) << 4U, two);
  }
};

// Each word gets the 12 bits of four codes.
template <>
struct Code<EntryType::kR3> {
  WINNOW_DEVICE static void load(const std::byte* codes, int n, int block, std::uint32_t (&words)[2]) {
    const bool is_whole = block >= kernels::kCodeGroup;  // the group has 32 numbers, not 16
    const int i = is_whole ? n % kernels::kCodeGroup / 8 : n / 8;
    const std::byte* group = codes + (is_whole ? n / kernels::kCodeGroup * 12 : 0);
    const int first = is_whole ? (i < 3 ? 4 * i : 3) : 3 * i;
    const int step = is_whole && i == 3 ? 4 : 1;
    std::uint32_t eight = 0;
    WINNOW_UNROLL
    for (int j = 0; j < 3; ++j) eight |= static_cast<std::uint32_t>(group[first + j * step]) << (8 * j);
    words[0] = eight;
    words[1] = eight >> 12U;
  }
  WINNOW_DEVICE static void levels(std::uint32_t word, std::uint32_t (&two)[2]) {
    const std::uint32_t selector = (word & 7U) | (word & 0x38U) << 1U | (word & 0x1C0U) << 2U | (word & 0xE00U) << 3U;
    look_up<3>(selector, 0, two);
  }
};

}  // namespace codes

// Calls body(Code<type>()).
template <class Body>
WINNOW_DEVICE void with_code(EntryType type, const Body& body) {
  if (type == EntryType::kR3) {
    body(codes::Code<EntryType::kR3>());
  } else if (type == EntryType::kR4) {
    body(codes::Code<EntryType::kR4>());
  } else if (type == EntryType::kQ4_0) {
    body(codes::Code<EntryType::kQ4_0>());
  } else {
    body(codes::Code<EntryType::kQ8_0>());
  }
}

// Loads the codes of numbers n to n + 7 of a row, n a multiple of 8.
template <class Code>
WINNOW_DEVICE codes::Eight load_codes(Code /*code*/, const CodedRow& layout, const std::byte* row, int n) {
  const std::byte* block = row + n / layout.block * layout.block_bytes;
  codes::Eight eight;
  eight.scale = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(block)) * 0x10001U;
  Code::load(block + 2, n % layout.block, layout.block, eight.words);
  return eight;
}

// Returns the numbers in float16: in the row's rotated coordinates if it has them.
template <class Code>
WINNOW_DEVICE simt::Words4 numbers_of(Code /*code*/, const codes::Eight& eight) {
  simt::Words4 numbers;
  WINNOW_UNROLL
  for (int w = 0; w < 2; ++w) {
    std::uint32_t levels[2];
    Code::levels(eight.words[w], levels);
    numbers.x[2 * w] = simt::multiply_f16(levels[0], eight.scale);
    numbers.x[2 * w + 1] = simt::multiply_f16(levels[1], eight.scale);
  }
  return numbers;
}

// Rotates rows of which each lane has eight numbers, in blocks of a power of two numbers, 16 to 128. A block's numbers
// are those of neighbouring lanes, the first of which is a multiple of their number.
WINNOW_DEVICE void rotate_eighths(float (&x)[8], int block) {
  WINNOW_UNROLL
  for (int stride = 1; stride < 8; stride *= 2) {
    WINNOW_UNROLL
    for (int i = 0; i < 8; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i], b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
  WINNOW_NO_UNROLL
  for (int mask = 1; mask < block / 8; mask *= 2) {
    WINNOW_UNROLL
    for (float& number : x) {
      const float other = simt::shuffle_xor(number, mask);
      number = (simt::lane() & mask) != 0 ? other - number : number + other;
    }
  }
  const float norm = 1.0F / simt::sqrt(static_cast<float>(block));
  WINNOW_UNROLL
  for (float& number : x) number *= norm;
}

}  // namespace winnow::device
