// Products of a decoding step's few rows with stored weights, at the speed of the memory in which the weights lie.
//
// A warp takes two rows of weights at a time and streams them in units of 1,024 numbers through its own ring in shared
// memory, continuing from two rows to the next two: a multiprocessor always has some 60 KiB of weights in flight,
// whatever alignment the blocks of their type have. Every lane has 32 numbers of a unit, at places that depend on the
// type. Sums stay in the lane until the row ends, so their order is the same for any number of rows of x and of
// weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/kernel_plans.h"
#include "device/kernels/simt.h"
#include "device/kernels/weight_types-inl.h"

namespace winnow::device {
namespace products {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;

constexpr int larger(int a, int b) { return a > b ? a : b; }

// The number of rows of weights that a warp takes at a time, and of blocks that a multiprocessor must have room for.
template <class Type>
inline constexpr int kTaken = Type::kType == WeightType::kF32 ? 1 : 2;
template <class Type, int kRows>
inline constexpr int kBlocks = kRows <= 2   ? 6
                               : kRows == 4 ? 5
                                            : 4;

// The ring of a warp.
template <class A, class B>
struct Ring {
  static constexpr int kMostBytes = larger(kUnitBytesOf<A>, kUnitBytesOf<B>);
  // A row may begin up to 14 bytes after a multiple of 16, and up to 8 bytes after its end are read.
  static constexpr int kRowBytes = (kMostBytes + 14 + 15) / 16 * 16 + 16;
  static constexpr int kUnitBytes = kTaken<A> * kRowBytes;
  static constexpr int kUnits = 5120 / kUnitBytes < 3 ? 3 : 5120 / kUnitBytes < 6 ? 5120 / kUnitBytes : 6;
  static constexpr int kBytes = kUnits * kUnitBytes;
};

template <class Type>
inline constexpr bool kIsAligned = kBlockBytes<Type> % 16 == 0 || kIsFloat<Type>;

// The rows of a part that a warp takes at a time.
struct Group {
  const ProductPart& part;
  int row;
  int n_rows;
};

// The groups of all parts.
template <int kN>
struct Groups {
  int first;   // number of groups of the first part
  int second;  // number of groups of the first two parts
  int n;

  WINNOW_DEVICE static int of_part(const VectorProduct& plan, int p) {
    return p < plan.n_parts ? (plan.parts[p].n_out + kN - 1) / kN : 0;
  }
  WINNOW_DEVICE static Groups of(const VectorProduct& plan) {
    Groups groups;
    groups.first = of_part(plan, 0);
    groups.second = groups.first + of_part(plan, 1);
    groups.n = groups.second + of_part(plan, 2);
    return groups;
  }
  WINNOW_DEVICE Group find(const VectorProduct& plan, int i) const {
    const int before = i < first ? 0 : i < second ? first : second;
    const ProductPart& part = i < first ? plan.parts[0] : i < second ? plan.parts[1] : plan.parts[2];
    const int row = (i - before) * kN;
    return {part, row, simt::min(kN, part.n_out - row)};
  }
};

// The copies that a warp starts, unit after unit of its groups.
template <class A, class B>
struct Reader {
  static constexpr int kN = kTaken<A>;
  using WarpRing = Ring<A, B>;

  int group;
  int unit;
  const std::byte* from;  // the lane's first copy of the unit of the group's first row
  int row_bytes;
  int next_row;  // bytes from the first row to the second, or 0 if there is none
  bool is_b;
  // Four bits for each of the units started last, the latest in the low bits: the bytes from a multiple of 16 to the
  // begin of each row, and whether the unit's type is B.
  std::uint32_t skipped[kN];
  std::uint32_t are_b;

  WINNOW_DEVICE int unit_bytes() const {
    if constexpr (std::is_same_v<A, B>) return kUnitBytesOf<A>;
    return is_b ? kUnitBytesOf<B> : kUnitBytesOf<A>;
  }

  WINNOW_DEVICE void go_to(const VectorProduct& plan, const Groups<kN>& groups, int to) {
    group = to;
    unit = 0;
    if (to >= groups.n) return;
    const Group found = groups.find(plan, to);
    row_bytes = plan.n_in / kBlockNumbers<A> * kBlockBytes<A>;
    if constexpr (!std::is_same_v<A, B>) {
      is_b = found.part.type == B::kType;
      if (is_b) row_bytes = plan.n_in / kBlockNumbers<B> * kBlockBytes<B>;
    }
    from = static_cast<const std::byte*>(found.part.weight) + static_cast<std::int64_t>(found.row) * row_bytes +
           16 * simt::lane();
    next_row = found.n_rows > 1 ? row_bytes : 0;
  }

  // Starts the copies of the next unit. `to` is the place of the lane's first copy in the ring.
  WINNOW_DEVICE void start(const VectorProduct& plan, const Groups<kN>& groups, int n_units, int n_workers,
                           SharedAddress to) {
    if constexpr (!std::is_same_v<A, B>) are_b = are_b << 4U | (is_b ? 1U : 0U);
    if (group < groups.n) {
      const int n_left = unit == n_units - 1 ? row_bytes - unit * unit_bytes() : unit_bytes();
      constexpr int kWords = (WarpRing::kRowBytes / 16 - 1 + 31) / 32;
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) {
        const std::byte* row = r == 0 ? from : from + next_row;
        int n_bytes = n_left - 16 * simt::lane();
        if constexpr (!kIsAligned<A> || !kIsAligned<B>) {
          const auto beyond = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(row) & 15U);
          skipped[r] = skipped[r] << 4U | beyond;
          n_bytes += static_cast<int>(beyond);
          row -= beyond;
        }
        WINNOW_UNROLL
        for (int i = 0; i < kWords; ++i) {
          if (n_bytes > 512 * i) simt::copy_async_16_at(to + (r * WarpRing::kRowBytes + 512 * i), row + 512 * i);
        }
      }
      from += unit_bytes();
      if (++unit == n_units) go_to(plan, groups, group + n_workers);
    } else if constexpr (!kIsAligned<A> || !kIsAligned<B>) {
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) skipped[r] <<= 4U;
    }
    simt::commit_copies();
  }

  // Return the values of the unit that was started kUnits - 1 units before the last one.
  WINNOW_DEVICE int skipped_of_oldest(int r) const {
    if constexpr (kIsAligned<A> && kIsAligned<B>) return 0;
    return static_cast<int>(skipped[r] >> (4 * (WarpRing::kUnits - 1)) & 15U);
  }
  WINNOW_DEVICE bool is_oldest_b() const { return (are_b >> (4 * (WarpRing::kUnits - 1)) & 1U) != 0; }
};

template <class Type, class A, class B, int kRows>
WINNOW_DEVICE void add_unit(const VectorProduct& plan, const Reader<A, B>& reader, int unit, SharedAddress from,
                            const Lane& lane, float (&sums)[kTaken<A>][kRows]) {
  constexpr int kN = kTaken<A>;
  const int n_left = plan.n_in - unit * kUnit;
  if constexpr (!kIsFloat<Type>) {
    if (simt::lane() * 32 / Type::kLaneNumbers * Type::kLaneNumbers >= n_left) return;
  }
  if constexpr (kIsFloat<Type>) {
    constexpr int kStep = 32 * Type::kOfWord;
    const float* x_unit = plan.x_float + (static_cast<std::uint32_t>(unit * kUnit) + lane.numbers);
    const auto add_word = [&](int k) {
      if (static_cast<int>(lane.numbers) + kStep * k >= n_left) return;
      simt::Words4 weights[kN];
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) {
        weights[r] = simt::load_shared_16(from + (r * Ring<A, B>::kRowBytes + 512 * k) + lane.block);
      }
      WINNOW_UNROLL
      for (int x = 0; x < kRows; ++x) {
        const int x_row = x == 0 ? 0 : simt::min(x, plan.n_rows - 1);
        simt::Words4 words[Type::kOfWord / 4];
        WINNOW_UNROLL
        for (int q = 0; q < Type::kOfWord / 4; ++q) {
          words[q] = simt::load_16(x_unit + (x_row * plan.n_in + kStep * k + 4 * q));
        }
        WINNOW_UNROLL
        for (int r = 0; r < kN; ++r) {
          WINNOW_UNROLL
          for (int j = 0; j < Type::kOfWord; ++j) {
            sums[r][x] = simt::fma(Type::number(weights[r], j), simt::float_of(words[j / 4].x[j % 4]), sums[r][x]);
          }
        }
      }
    };
    // Registers suffice for many loads at a time or for many rows, but not for both.
    if constexpr (kRows * Type::kWords <= 8) {
      WINNOW_UNROLL
      for (int k = 0; k < Type::kWords; ++k) add_word(k);
    } else {
      WINNOW_NO_UNROLL
      for (int k = 0; k < Type::kWords; ++k) add_word(k);
    }
  } else {
    const auto load_row = [&](int x) {
      const int x_row = x == 0 ? 0 : simt::min(x, plan.n_rows - 1);
      const auto at = static_cast<std::uint32_t>(x_row * plan.n_in + unit * kUnit);
      return Type::load(plan.x.numbers + at, plan.x.scales + (at >> 4U), lane);
    };
    typename Type::Weights w[kN];
    EightBits row = load_row(0);  // issued first: it takes longer than loads from shared memory
    WINNOW_UNROLL
    for (int r = 0; r < kN; ++r) {
      w[r] = Type::load_weights(from + (r * Ring<A, B>::kRowBytes + reader.skipped_of_oldest(r)), lane);
    }
    WINNOW_UNROLL
    for (int x = 0; x < kRows; ++x) {
      if (x > 0) row = load_row(x);
      WINNOW_UNROLL
      for (int r = 0; r < kN; ++r) sums[r][x] = w[r].add_product(row, sums[r][x]);
    }
  }
}

// Adds up the lanes' sums and stores a group's results.
template <int kN, int kRows>
WINNOW_DEVICE void finish(const VectorProduct& plan, const Group& group, float (&sums)[kN][kRows]) {
  static_assert(kN * kRows <= 32);
  float own = 0;
  WINNOW_UNROLL
  for (int r = 0; r < kN; ++r) {
    WINNOW_UNROLL
    for (int x = 0; x < kRows; ++x) {
      const float sum = simt::sum_lanes<1, 32>(sums[r][x]);
      if (simt::lane() == r * kRows + x) own = sum;
      sums[r][x] = 0;
    }
  }
  const int r = simt::lane() / kRows, x = simt::lane() % kRows;
  if (r >= group.n_rows || x >= plan.n_rows) return;
  const int out = group.row + r;
  const std::int64_t at = static_cast<std::int64_t>(x) * group.part.n_out + out;
  if (group.part.bias != nullptr) own += group.part.bias[out];
  if (group.part.add != nullptr) own += group.part.add[at];
  group.part.y[at] = own;
}

template <class A, class B, int kRows>
WINNOW_KERNEL void WINNOW_THREADS(kThreads, (kBlocks<A, kRows>)) multiply(VectorProduct plan) {
  using WarpRing = Ring<A, B>;
  constexpr int kN = kTaken<A>;
  const SharedAddress ring = simt::shared_address(simt::shared()) + simt::warp() * WarpRing::kBytes;
  const std::uint32_t first_copy = simt::kept(16U * static_cast<std::uint32_t>(simt::lane()));
  const Lane lane_of_a = kept(A::lane_of(static_cast<std::uint32_t>(simt::lane())));
  const Groups<kN> groups = Groups<kN>::of(plan);
  const int n_units = (plan.n_in + kUnit - 1) / kUnit;
  const int n_workers = simt::grid_x() * kWarps;
  // Neighbouring groups go to different blocks, so that the remainder at the end is spread over the device.
  int group = simt::warp() * simt::grid_x() + simt::block_x();
  Reader<A, B> reader = {};
  reader.go_to(plan, groups, group);
  WINNOW_UNROLL
  for (int s = 0; s < WarpRing::kUnits - 1; ++s) {
    reader.start(plan, groups, n_units, n_workers, ring + first_copy + s * WarpRing::kUnitBytes);
  }
  simt::wait_for_previous();
  simt::let_next_begin();
  float sums[kN][kRows] = {};
  int slot = 0, unit = 0;
  WINNOW_NO_UNROLL
  while (group < groups.n) {
    simt::wait_copies<WarpRing::kUnits - 2>();
    simt::warp_barrier();
    const int free_slot = slot == 0 ? WarpRing::kUnits - 1 : slot - 1;
    reader.start(plan, groups, n_units, n_workers, ring + first_copy + free_slot * WarpRing::kUnitBytes);
    const SharedAddress from = ring + slot * WarpRing::kUnitBytes;
    if constexpr (std::is_same_v<A, B>) {
      add_unit<A>(plan, reader, unit, from, lane_of_a, sums);
    } else if (reader.is_oldest_b()) {
      add_unit<B>(plan, reader, unit, from, B::lane_of(static_cast<std::uint32_t>(simt::lane())), sums);
    } else {
      add_unit<A>(plan, reader, unit, from, lane_of_a, sums);
    }
    slot = slot == WarpRing::kUnits - 1 ? 0 : slot + 1;
    if (++unit < n_units) continue;
    finish(plan, groups.find(plan, group), sums);
    unit = 0;
    group += n_workers;
  }
}

template <class A, class B, int kRows>
void queue_of_rows(simt::Queue& queue, const VectorProduct& plan) {
  constexpr int kN = kTaken<A>;
  int n_groups = 0;
  for (int p = 0; p < plan.n_parts; ++p) n_groups += (plan.parts[p].n_out + kN - 1) / kN;
  const auto kernel = multiply<A, B, kRows>;
  constexpr std::size_t shared_bytes = static_cast<std::size_t>(kWarps) * Ring<A, B>::kBytes;
  const int n_resident = simt::resident_blocks(queue, kThreads, shared_bytes, kernel);
  const int n_needed = (n_groups + kWarps - 1) / kWarps;
  const auto n_blocks = static_cast<unsigned>(n_needed < n_resident ? n_needed : n_resident);
  simt::launch_overlapping(queue, {n_blocks}, kThreads, shared_bytes, kernel, plan);
}

template <class A, class B = A>
void queue_of_types(simt::Queue& queue, const VectorProduct& plan) {
  if (plan.n_rows == 1) return queue_of_rows<A, B, 1>(queue, plan);
  if (plan.n_rows == 2) return queue_of_rows<A, B, 2>(queue, plan);
  if (plan.n_rows <= 4) return queue_of_rows<A, B, 4>(queue, plan);
  queue_of_rows<A, B, 8>(queue, plan);
}

inline void queue_of_one_type(simt::Queue& queue, const VectorProduct& plan) {
  switch (plan.parts[0].type) {
    case WeightType::kF32:
      return queue_of_types<Floats<WeightType::kF32>>(queue, plan);
    case WeightType::kF16:
      return queue_of_types<Floats<WeightType::kF16>>(queue, plan);
    case WeightType::kBF16:
      return queue_of_types<Floats<WeightType::kBF16>>(queue, plan);
    case WeightType::kQ4_0:
      return queue_of_types<Q4_0>(queue, plan);
    case WeightType::kQ4_1:
      return queue_of_types<Q4_1>(queue, plan);
    case WeightType::kQ8_0:
      return queue_of_types<Q8_0>(queue, plan);
    case WeightType::kQ4_K:
      return queue_of_types<Q4_K>(queue, plan);
    case WeightType::kQ5_K:
      return queue_of_types<Q5_K>(queue, plan);
    case WeightType::kQ6_K:
      return queue_of_types<Q6_K>(queue, plan);
  }
}

}  // namespace products

// Queues one launch if all parts have one type, or q4_K or q5_K together with q6_K, as files mix them; else one launch
// for each part.
inline void queue_vector_product(simt::Queue& queue, const VectorProduct& plan) {
  int n_q4 = 0, n_q5 = 0, n_q6 = 0, n_like_first = 0;
  for (int p = 0; p < plan.n_parts; ++p) {
    const WeightType type = plan.parts[p].type;
    n_q4 += type == WeightType::kQ4_K ? 1 : 0;
    n_q5 += type == WeightType::kQ5_K ? 1 : 0;
    n_q6 += type == WeightType::kQ6_K ? 1 : 0;
    n_like_first += type == plan.parts[0].type ? 1 : 0;
  }
  if (n_like_first == plan.n_parts) return products::queue_of_one_type(queue, plan);
  if (n_q4 + n_q6 == plan.n_parts) return products::queue_of_types<products::Q4_K, products::Q6_K>(queue, plan);
  if (n_q5 + n_q6 == plan.n_parts) return products::queue_of_types<products::Q5_K, products::Q6_K>(queue, plan);
  for (int p = 0; p < plan.n_parts; ++p) {
    VectorProduct one = plan;
    one.n_parts = 1;
    one.parts[0] = plan.parts[p];
    products::queue_of_one_type(queue, one);
  }
}

}  // namespace winnow::device
