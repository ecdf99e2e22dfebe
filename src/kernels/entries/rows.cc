// Conversions and norms of stored rows.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/entries/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/entries/load-inl.h"
#include "kernels/entries/rotated_codes.h"
#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"
#include "kernels/simd/tiling.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void load_row(EntryType type, const std::byte* src, float* dst, int n) { expand_row(type, src, dst, n); }

// Every instruction set stores the same bits. Highway's emulation of the conversion truncates, so older x86 targets use
// the scalar conversion.
void store_half_row(const float* src, std::byte* dst, int n) {
  int i = 0;
#if !HWY_ARCH_X86 || HWY_TARGET <= HWY_AVX2
  const F d;
  const hn::Rebind<hwy::float16_t, F> half;
  const VF high = hn::Set(d, 65504.0F);
  for (; i + kLanes <= n; i += kLanes) {
    const VF x = hn::LoadU(d, src + i);
    // Numbers beyond float16's range become its largest number (half.h), and NaN stays NaN.
    const VF held = hn::IfThenElse(hn::Gt(hn::Abs(x), high), hn::CopySign(high, x), x);
    hn::StoreU(hn::DemoteTo(half, held), half, reinterpret_cast<hwy::float16_t*>(dst) + i);
  }
#endif
  for (; i < n; ++i) {
    const std::uint16_t h = half_from_float(src[i]);
    std::memcpy(dst + static_cast<std::size_t>(i) * sizeof(h), &h, sizeof(h));
  }
}

void expand_entry(const AttentionShape& shape, const EntryRun& run, RowKind kind, std::int32_t i, float* dst) {
  const int n = kind == RowKind::kKey ? shape.key_dim : shape.value_dim;
  expand_row(row_type(run, kind), row_at(shape, run, kind, i), dst, n);
  if (kind == RowKind::kValue || run.origin == nullptr) return;
  const F d;
  for (int c = 0; c < n; c += kLanes)
    hn::StoreU(hn::Add(hn::LoadU(d, dst + c), F16Row::load(run.origin, c)), d, dst + c);
}

enum class Norm { kL1, kL2 };

template <Norm kNorm>
HWY_INLINE float row_norm(const float* row, int n) {
  const F d;
  VF sum = hn::Zero(d);
  for (int i = 0; i < n; i += kLanes) {
    const VF x = hn::Load(d, row + i);
    sum = kNorm == Norm::kL1 ? hn::Add(sum, hn::Abs(x)) : hn::MulAdd(x, x, sum);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  return kNorm == Norm::kL1 ? total : std::sqrt(total);
}

template <Norm kNorm, RowKind kKind>
HWY_INLINE void norms(const AttentionShape& shape, const HeadEntries& entries, float* out) {
  alignas(64) float row[kMaxHeadDim] = {};
  const int n = kKind == RowKind::kKey ? shape.key_dim : shape.value_dim;
  for (const EntryRun& run : entries.runs) {
    for (std::int32_t i = 0; i < run.n_entries; ++i) {
      expand_entry(shape, run, kKind, i, row);
      *out++ = row_norm<kNorm>(row, n);
    }
  }
}

void value_l1_norms(const AttentionShape& shape, const HeadEntries& entries, float* out) {
  norms<Norm::kL1, RowKind::kValue>(shape, entries, out);
}

void value_l2_norms(const AttentionShape& shape, const HeadEntries& entries, float* out) {
  norms<Norm::kL2, RowKind::kValue>(shape, entries, out);
}

void key_l2_norms(const AttentionShape& shape, const HeadEntries& entries, float* out) {
  norms<Norm::kL2, RowKind::kKey>(shape, entries, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {
namespace {

void store_bfloat_row(const float* src, std::byte* dst, int n) {
  for (int i = 0; i < n; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(src[i]);
    const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    const std::uint32_t rounded = nan ? bits | 0x400000U : bits + 0x7FFFU + (bits >> 16 & 1U);
    const auto h = static_cast<std::uint16_t>(rounded >> 16);
    std::memcpy(dst + static_cast<std::size_t>(i) * sizeof(h), &h, sizeof(h));
  }
}

void store_scale(float scale, std::byte* block) {
  const std::uint16_t h = half_from_float(scale);
  std::memcpy(block, &h, sizeof(h));
}

// Returns 0 for NaN, and the nearest integer in range for other numbers beyond it; a model with damaged weights may
// have both.
int to_integer(float x, int least, int most) {
  if (!(x > static_cast<float>(least))) return std::isnan(x) ? 0 : least;
  return x < static_cast<float>(most) ? static_cast<int>(x) : most;
}

// Block-quantised types round as ggml does, by the scale before its own rounding to float16.
void store_q8_0_row(const float* src, std::byte* dst, int n) {
  for (int first = 0; first < n; first += 32, src += 32, dst += 34) {
    float greatest = 0.0F;
    for (int i = 0; i < 32; ++i) greatest = std::max(greatest, std::abs(src[i]));
    const float scale = greatest / 127.0F;
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    store_scale(scale, dst);
    for (int i = 0; i < 32; ++i) {
      dst[2 + i] = static_cast<std::byte>(to_integer(std::round(src[i] * inverse), -127, 127));
    }
  }
}

void store_q4_0_row(const float* src, std::byte* dst, int n) {
  for (int first = 0; first < n; first += 32, src += 32, dst += 18) {
    float farthest = 0.0F;  // the number farthest from 0, with its sign; it is quantised to -8
    for (int i = 0; i < 32; ++i) farthest = std::abs(src[i]) > std::abs(farthest) ? src[i] : farthest;
    const float scale = farthest / -8.0F;
    const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
    store_scale(scale, dst);
    const auto quantise = [&](float x) { return to_integer(x * inverse + 8.5F, 0, 15); };
    for (int i = 0; i < 16; ++i) {
      dst[2 + i] = static_cast<std::byte>(quantise(src[i]) | quantise(src[i + 16]) << 4);
    }
  }
}

}  // namespace

HWY_EXPORT(load_row);
HWY_EXPORT(expand_entry);
HWY_EXPORT(store_half_row);
HWY_EXPORT(value_l1_norms);
HWY_EXPORT(value_l2_norms);
HWY_EXPORT(key_l2_norms);

void load_row(EntryType type, const std::byte* src, float* dst, int n) {
  HWY_DYNAMIC_DISPATCH(load_row)(type, src, dst, n);
}

void load_entry(const AttentionShape& shape, const EntryRun& run, RowKind kind, std::int32_t i, float* dst) {
  HWY_DYNAMIC_DISPATCH(expand_entry)(shape, run, kind, i, dst);
}

void store_mean_key(const HeadEntries& entries, int key_dim, std::int32_t first, std::int32_t last, std::byte* out) {
  assert(first < last && last <= entries.n_entries);
  const AttentionShape shape{.n_group = 1,
                             .key_dim = key_dim,
                             .value_dim = key_dim,
                             .key_type = EntryType::kF16,
                             .value_type = EntryType::kF16,
                             .spec = {}};
  const auto n = static_cast<std::size_t>(key_dim);
  float row[kMaxHeadDim];
  double sums[kMaxHeadDim] = {};
  RunCursor cursor(entries);
  for (std::int32_t done = first; done < last;) {
    const RunCursor::Piece piece = cursor.seek(done);
    const std::int32_t count = std::min(piece.count, last - done);
    for (std::int32_t i = 0; i < count; ++i) {
      load_entry(shape, *piece.run, RowKind::kKey, piece.offset + i, row);
      for (std::size_t c = 0; c < n; ++c) sums[c] += static_cast<double>(row[c]);
    }
    done += count;
  }
  bool is_finite = true;
  for (std::size_t c = 0; c < n; ++c) {
    row[c] = static_cast<float>(sums[c] / (last - first));
    is_finite &= std::isfinite(row[c]);
  }
  if (!is_finite) std::fill_n(row, n, 0.0F);
  store_row(EntryType::kF16, row, out, key_dim);
}

void store_row(EntryType type, const float* src, std::byte* dst, int n) {
  switch (type) {
    case EntryType::kF32:
      std::copy_n(reinterpret_cast<const std::byte*>(src), static_cast<std::size_t>(n) * sizeof(float), dst);
      return;
    case EntryType::kF16:
      HWY_DYNAMIC_DISPATCH(store_half_row)(src, dst, n);
      return;
    case EntryType::kBF16:
      return store_bfloat_row(src, dst, n);
    case EntryType::kQ8_0:
      return store_q8_0_row(src, dst, n);
    case EntryType::kQ4_0:
      return store_q4_0_row(src, dst, n);
    case EntryType::kR4:
    case EntryType::kR3:
      return store_coded_row(type, src, dst, n);
  }
}

void convert_row(EntryType from, EntryType to, const std::byte* src, std::byte* dst, int n) {
  if (from == to) {
    std::memcpy(dst, src, row_bytes(to, n));
    return;
  }
  float numbers[kMaxHeadDim];
  load_row(from, src, numbers, n);
  store_row(to, numbers, dst, n);
}

void value_l1_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out) {
  assert(out.size() >= static_cast<std::size_t>(entries.n_entries));
  HWY_DYNAMIC_DISPATCH(value_l1_norms)(shape, entries, out.data());
}

void value_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out) {
  assert(out.size() >= static_cast<std::size_t>(entries.n_entries));
  HWY_DYNAMIC_DISPATCH(value_l2_norms)(shape, entries, out.data());
}

void key_l2_norms(const AttentionShape& shape, const HeadEntries& entries, std::span<float> out) {
  assert(out.size() >= static_cast<std::size_t>(entries.n_entries));
  HWY_DYNAMIC_DISPATCH(key_l2_norms)(shape, entries, out.data());
}

}  // namespace winnow::kernels
#endif
