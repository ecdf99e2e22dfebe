#include "kernels/entries/rotated_codes.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/entries/code_feedback.h"
#include "kernels/entries/nearest_level.h"
#include "kernels/simd/half.h"
#include "winnow/entries.h"

namespace winnow::kernels {
namespace {

constexpr int kMaxBlock = 128;
constexpr int kLeastBlock = 16;  // row_bytes() accepts only head sizes that are multiples of it
template <std::size_t kLevels>
using Magnitudes = std::span<const float, kLevels>;
constexpr Magnitudes<8> kMagnitudes4(kLevels4, 8);
constexpr Magnitudes<4> kMagnitudes3(kLevels3, 4);

std::size_t block_bytes(int bits, int block) { return 2 + static_cast<std::size_t>(block * bits / 8); }

// Finds the indices of the nearest magnitudes at a scale.
template <std::size_t kLevels>
void match(Magnitudes<kLevels> magnitudes, const float* y, int n, float scale, std::int32_t* index) {
  std::array<float, kLevels - 1> bounds;  // half-way between neighbours
  for (std::size_t i = 0; i + 1 < kLevels; ++i) bounds[i] = scale * (magnitudes[i] + magnitudes[i + 1]) / 2;
  nearest_levels(y, n, bounds, index);
}

// Returns term(0) + ... + term(n - 1), n a multiple of 4, summed in four parts: they are independent, and every
// instruction set gives the same bits.
template <class Term>
float sum_of(int n, const Term& term) {
  float parts[4] = {};
  for (int i = 0; i < n; i += 4) {
    for (int j = 0; j < 4; ++j) parts[j] += term(i + j);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// Returns the scale that fits the chosen magnitudes best.
template <std::size_t kLevels>
float best_scale(Magnitudes<kLevels> magnitudes, const float* y, int n, const std::int32_t* index) {
  float z[kMaxBlock];
  for (int i = 0; i < n; ++i) z[i] = magnitudes[static_cast<std::size_t>(index[i])];
  const float yz = sum_of(n, [&](int i) { return std::abs(y[i]) * z[i]; });
  return yz / sum_of(n, [&](int i) { return z[i] * z[i]; });
}

// Returns the scale's float16 bits, and leaves the indices of the magnitudes at that scale in `index`.
template <std::size_t kLevels>
std::uint16_t fit_scale(Magnitudes<kLevels> magnitudes, const float* y, int n, std::int32_t* index) {
  float scale = std::sqrt(sum_of(n, [&](int i) { return y[i] * y[i]; }) / static_cast<float>(n));
  std::uint16_t bits = 0;
  for (int round = 0; round < 2; ++round) {
    if (scale == 0.0F) break;
    match(magnitudes, y, n, scale, index);
    bits = half_from_float(best_scale(magnitudes, y, n, index));
    scale = float_from_half(bits);
  }
  match(magnitudes, y, n, scale, index);
  return scale == 0.0F ? 0 : bits;
}

std::uint16_t fit_scale(int bits, const float* y, int n, std::int32_t* index) {
  return bits == 4 ? fit_scale(kMagnitudes4, y, n, index) : fit_scale(kMagnitudes3, y, n, index);
}

// Rotates a row whose numbers are clamped to float16's range, as for float16.
void rotate_clamped(const float* x, float* y, int head_dim) {
  for (int i = 0; i < head_dim; ++i) y[i] = std::clamp(x[i], -65504.0F, 65504.0F);
  rotate_row(y, y, head_dim);
}

// The 24 bits of eight codes of 3 bits, in a group of `size` (rotated_codes.h).
class EightCodes {
 public:
  EightCodes(int i, int size)
      : first_(size < kCodeGroup ? 3 * i
               : i < 3           ? 4 * i
                                 : 3),
        step_(size == kCodeGroup && i == 3 ? 4 : 1) {}

  std::uint32_t load(const std::byte* group) const {
    std::uint32_t bits = 0;
    for (int j = 0; j < 3; ++j) bits |= std::to_integer<std::uint32_t>(group[first_ + j * step_]) << 8 * j;
    return bits;
  }
  void store(std::uint32_t bits, std::byte* group) const {
    for (int j = 0; j < 3; ++j) group[first_ + j * step_] = static_cast<std::byte>(bits >> 8 * j & 0xFFU);
  }

 private:
  int first_, step_;  // the first of their bytes, and the distance between these
};

void pack(int bits, const float* y, const std::int32_t* index, int n, std::byte* out) {
  const auto code = [&](int i) {
    return (std::signbit(y[i]) ? 1U : 0U) << (bits - 1) | static_cast<unsigned>(index[i]);
  };
  if (bits == 4) {
    const int half = std::min(n, kCodeGroup) / 2;
    for (int first = 0; first < n; first += 2 * half) {
      for (int i = 0; i < half; ++i) {
        *out++ = static_cast<std::byte>(code(first + i) | code(first + half + i) << 4);
      }
    }
    return;
  }
  const int size = std::min(n, kCodeGroup);
  for (int first = 0; first < n; first += size, out += size * 3 / 8) {
    for (int i = 0; i < size; i += 8) {
      std::uint32_t eight = 0;
      for (int j = 0; j < 8; ++j) eight |= code(first + i + j) << 3 * j;
      EightCodes(i / 8, size).store(eight, out);
    }
  }
}

void write_block(int bits, std::uint16_t scale, const float* y, const std::int32_t* index, int n, std::byte* out) {
  std::memcpy(out, &scale, sizeof(scale));
  pack(bits, y, index, n, out + sizeof(scale));
}

// Calls f(i, is_negative, magnitude) for every number i of a block, with the index of its magnitude.
template <class Function>
void for_each_code(int bits, const std::byte* codes, int n, const Function& f) {
  if (bits == 4) {
    const int half = std::min(n, kCodeGroup) / 2;
    const auto put = [&f](int i, unsigned code) { f(i, (code & 8U) != 0, code & 7U); };
    for (int first = 0; first < n; first += 2 * half, codes += half) {
      for (int i = 0; i < half; ++i) {
        const auto both = std::to_integer<unsigned>(codes[i]);
        put(first + i, both);
        put(first + half + i, both >> 4);
      }
    }
    return;
  }
  const int size = std::min(n, kCodeGroup);
  for (int first = 0; first < n; first += size, codes += size * 3 / 8) {
    for (int i = 0; i < size; i += 8) {
      std::uint32_t eight = EightCodes(i / 8, size).load(codes);
      for (int j = 0; j < 8; ++j, eight >>= 3) f(first + i + j, (eight & 4U) != 0, eight & 3U);
    }
  }
}

float read_scale(const std::byte* block) {
  std::uint16_t bits;
  std::memcpy(&bits, block, sizeof(bits));
  return float_from_half(bits);
}

}  // namespace

int code_bits(EntryType type) { return type == EntryType::kR4 ? 4 : type == EntryType::kR3 ? 3 : 0; }

int code_block(int head_dim) { return std::min(head_dim & -head_dim, kMaxBlock); }

std::span<const float> code_magnitudes(int bits) {
  if (bits == 4) return kMagnitudes4;
  return kMagnitudes3;
}

void store_coded_row(EntryType type, const float* src, std::byte* dst, int head_dim) {
  assert(head_dim <= kMaxHeadDim);
  const int bits = code_bits(type);
  const int block = code_block(head_dim);
  float y[kMaxHeadDim] = {};
  std::int32_t index[kMaxBlock];
  rotate_clamped(src, y, head_dim);
  for (int first = 0; first < head_dim; first += block, dst += block_bytes(bits, block)) {
    const std::uint16_t scale = fit_scale(bits, y + first, block, index);
    write_block(bits, scale, y + first, index, block, dst);
  }
}

void store_coded_rows(EntryType type, const CodeFeedback& feedback, const float* rows,
                      std::span<std::byte* const> targets) {
  const int head_dim = feedback.head_dim(), bits = code_bits(type), block = code_block(head_dim);
  const auto in = [](int step, std::size_t row) { return static_cast<std::size_t>(step) * kFeedbackRows + row; };
  alignas(64) float y[kMaxHeadDim * kFeedbackRows], scales[kMaxHeadDim * kFeedbackRows];  // by step
  alignas(64) std::int32_t index[kMaxHeadDim * kFeedbackRows];
  std::uint16_t scale_bits[kFeedbackRows][kMaxHeadDim / kLeastBlock];
  float row[kMaxHeadDim], scale_of[kMaxHeadDim / kLeastBlock];
  std::int32_t of_row[kMaxHeadDim];
  for (; !targets.empty(); rows += std::ptrdiff_t{kFeedbackRows} * head_dim) {
    const std::size_t n = std::min(targets.size(), std::size_t{kFeedbackRows});
    for (std::size_t r = 0; r < kFeedbackRows; ++r) {  // the last row is repeated if there are fewer
      rotate_clamped(rows + static_cast<std::ptrdiff_t>(std::min(r, n - 1)) * head_dim, row, head_dim);
      for (int b = 0; b < head_dim / block; ++b) {
        scale_bits[r][b] = fit_scale(bits, row + b * block, block, of_row);
        scale_of[b] = float_from_half(scale_bits[r][b]);
      }
      for (int step = 0; step < head_dim; ++step) {
        const std::int32_t i = feedback.order()[static_cast<std::size_t>(step)];
        y[in(step, r)] = row[i];
        scales[in(step, r)] = scale_of[i / block];
      }
    }
    choose_with_feedback(feedback, code_magnitudes(bits), scales, y, index);
    for (std::size_t r = 0; r < n; ++r) {
      for (int step = 0; step < head_dim; ++step) {
        const std::int32_t i = feedback.order()[static_cast<std::size_t>(step)];
        row[i] = y[in(step, r)];
        of_row[i] = index[in(step, r)];
      }
      std::byte* dst = targets[r];
      for (int b = 0; b < head_dim / block; ++b, dst += block_bytes(bits, block)) {
        write_block(bits, scale_bits[r][b], row + b * block, of_row + b * block, block, dst);
      }
    }
    targets = targets.subspan(n);
  }
}

void load_rotated_row(EntryType type, const std::byte* src, float* dst, int head_dim) {
  const int bits = code_bits(type);
  const int block = code_block(head_dim);
  const std::span<const float> magnitudes = code_magnitudes(bits);
  for (int first = 0; first < head_dim; first += block, src += block_bytes(bits, block)) {
    const float scale = read_scale(src);
    for_each_code(bits, src + 2, block, [&](int i, bool is_negative, unsigned magnitude) {
      const float level = scale * magnitudes[magnitude];
      dst[first + i] = is_negative ? -level : level;
    });
  }
}

void load_coded_row(EntryType type, const std::byte* src, float* dst, int head_dim) {
  load_rotated_row(type, src, dst, head_dim);
  rotate_row(dst, dst, head_dim);
}

void unpack_codes(EntryType type, const std::byte* src, int head_dim, std::span<std::uint8_t> codes,
                  std::span<float> scales) {
  const int bits = code_bits(type);
  const int block = code_block(head_dim);
  const int half = 1 << (bits - 1);
  assert(std::ssize(codes) == head_dim && std::ssize(scales) == head_dim / block);
  for (int first = 0; first < head_dim; first += block, src += block_bytes(bits, block)) {
    scales[static_cast<std::size_t>(first / block)] = read_scale(src);
    for_each_code(bits, src + 2, block, [&](int i, bool is_negative, unsigned magnitude) {
      const int index = static_cast<int>(magnitude);
      codes[static_cast<std::size_t>(first + i)] =
          static_cast<std::uint8_t>(is_negative ? half - 1 - index : half + index);
    });
  }
}

}  // namespace winnow::kernels
