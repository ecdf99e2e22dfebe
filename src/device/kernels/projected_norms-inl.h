// CriticalKV's value term (arXiv 2502.03805, section 4): the L1 norm of each value after the output projection. A warp
// keeps 32 values in registers, and the slices of W_O for the values' query heads pass through shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kProjectionThreads = 128;
inline constexpr int kProjectionTiles = 2;  // tiles of values in a block

// Converts two bfloat16 numbers to a format.
template <class Format>
WINNOW_DEVICE std::uint32_t weights_from_bf16(std::uint32_t two) {
  return Format::pack(clamped(simt::low_bf16(two), Format::kLargest), clamped(simt::high_bf16(two), Format::kLargest));
}
template <>
WINNOW_DEVICE std::uint32_t weights_from_bf16<BF16Format>(std::uint32_t two) {
  return two;
}

// Starts the copy of 64 rows of W_O: tile `index` of the n_tiles tiles of each query head of the group.
template <int kDim>
WINNOW_DEVICE void copy_projection(const ProjectedNorms& p, int first_head, int index, int n_tiles, std::byte* to) {
  using Tile = RowTile<kDim>;
  const int head = first_head + index / n_tiles, first_row = index % n_tiles * kTileEntries;
  const std::int64_t pitch = static_cast<std::int64_t>(p.layer.n_head) * p.layer.value_dim * 2;  // bytes
  const std::byte* const from = static_cast<const std::byte*>(p.w_o) + static_cast<std::int64_t>(first_row) * pitch +
                                static_cast<std::int64_t>(head) * p.layer.value_dim * 2;
  for (int i = simt::thread(); i < kTileEntries * Tile::kWords; i += kProjectionThreads) {
    const int row = i / Tile::kWords, word = i % Tile::kWords;
    const bool is_there = first_row + row < p.n_embd && word * 8 < p.layer.value_dim;
    simt::copy_async_16_or_zero(to + row * Tile::kPitch + word * 16, is_there ? from + row * pitch + word * 16 : from,
                                is_there);
  }
  simt::commit_copies();
}

// Block (x, y) takes kProjectionTiles tiles of the values of KV head y.
template <class Format, int kDim>
WINNOW_KERNEL void WINNOW_THREADS(kProjectionThreads, kDim == 64    ? 4
                                                      : kDim == 128 ? 3
                                                                    : 2) projected_norms_kernel(ProjectedNorms p) {
  using Tile = RowTile<kDim>;
  constexpr int kSteps = kDim / 16;
  const int kv_head = simt::block_y(), n_group = p.layer.n_head / p.layer.n_kv_head;
  const HeadTable table = p.heads[kv_head];
  const int first_tile = simt::block_x() * kProjectionTiles;
  if (table.n_entries <= 0 || first_tile * kTileEntries >= table.first_slot + table.n_entries) return;

  std::byte* const tiles = simt::shared();  // tiles of values, later of W_O
  WINNOW_UNROLL
  for (int t = 0; t < kProjectionTiles; ++t) {
    const PageRows page = table.pages[page_in_tile<kProjectionThreads>(table, first_tile + t)];
    copy_tile<kDim, kProjectionThreads>(tiles + t * Tile::kBytes, page.values, p.layer.value_dim,
                                        table.first_slot - (first_tile + t) * kTileEntries, table.n_entries);
  }
  simt::commit_copies();
  simt::wait_copies<0>();
  simt::barrier();
  std::uint32_t values[2][kSteps][4];  // of 32 slots
  const int first_slot = first_tile * kTileEntries + simt::warp() * 32;
  const std::byte* const own = tiles + simt::warp() / 2 * Tile::kBytes + simt::warp() % 2 * 32 * Tile::kPitch;
  WINNOW_UNROLL
  for (int half = 0; half < 2; ++half) {
    WINNOW_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      simt::load_matrix(values[half][step], own + half * 16 * Tile::kPitch + left_lane_offset<kDim>() + step * 32);
    }
  }
  simt::barrier();

  const int n_tiles = (p.n_embd + kTileEntries - 1) / kTileEntries, n = n_group * n_tiles;
  copy_projection<kDim>(p, kv_head * n_group, 0, n_tiles, tiles);
  float sums[2][2] = {};  // of rows fragment_row(i) of each half
  for (int index = 0; index < n; ++index) {
    simt::wait_copies<0>();
    simt::barrier();  // after it, the other tile can be overwritten, too
    if (index + 1 < n) {
      copy_projection<kDim>(p, kv_head * n_group, index + 1, n_tiles, tiles + (index + 1) % 2 * Tile::kBytes);
    }
    const std::byte* const weights = tiles + index % 2 * Tile::kBytes + key_lane_offset<kDim>();
    WINNOW_UNROLL
    for (int column = 0; column < kTileEntries; column += 16) {
      float products[2][2][4] = {};
      WINNOW_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        std::uint32_t w[4];
        simt::load_matrix(w, weights + column * Tile::kPitch + step * 32);
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) w[i] = weights_from_bf16<Format>(w[i]);
        const std::uint32_t first[2] = {w[0], w[1]}, second[2] = {w[2], w[3]};
        WINNOW_UNROLL
        for (int half = 0; half < 2; ++half) {
          Format::multiply(products[half][0], values[half][step], first);
          Format::multiply(products[half][1], values[half][step], second);
        }
      }
      WINNOW_UNROLL
      for (int half = 0; half < 2; ++half) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float left = products[half][0][i], right = products[half][1][i];
          sums[half][i / 2] += simt::max(left, -left) + simt::max(right, -right);
        }
      }
    }
  }
  WINNOW_UNROLL
  for (int half = 0; half < 2; ++half) {
    WINNOW_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float sum = simt::sum_lanes<1, 4>(sums[half][i]);
      const std::int32_t entry = first_slot + half * 16 + fragment_row(i * 2) - table.first_slot;
      if ((simt::lane() & 3) == 0 && entry >= 0 && entry < table.n_entries) {
        p.norms[static_cast<std::int64_t>(kv_head) * p.stride + entry] = sum / static_cast<float>(n_group);
      }
    }
  }
}

template <class Format, int kDim>
void queue_projected_norms_of_dim(simt::Queue& queue, const ProjectedNorms& plan) {
  // The first entry may lie in any slot of a page.
  constexpr int kSlots = kProjectionTiles * kTileEntries;
  const simt::Grid grid = {.x = static_cast<unsigned>((plan.n_most + kPageEntries - 1 + kSlots - 1) / kSlots),
                           .y = static_cast<unsigned>(plan.layer.n_kv_head)};
  simt::launch(queue, grid, kProjectionThreads, kProjectionTiles * RowTile<kDim>::kBytes,
               projected_norms_kernel<Format, kDim>, plan);
}

template <class Format>
void queue_projected_norms_of_type(simt::Queue& queue, const ProjectedNorms& plan) {
  const int dim = plan.layer.value_dim;
  if (dim <= 64) {
    queue_projected_norms_of_dim<Format, 64>(queue, plan);
  } else if (dim <= 128) {
    queue_projected_norms_of_dim<Format, 128>(queue, plan);
  } else {
    queue_projected_norms_of_dim<Format, 256>(queue, plan);
  }
}

// Queues the norms. Values are f16 or bf16.
inline void queue_projected_norms(simt::Queue& queue, const ProjectedNorms& plan) {
  if (plan.n_most <= 0) return;
  if (plan.layer.value_type == EntryType::kBF16) {
    queue_projected_norms_of_type<BF16Format>(queue, plan);
  } else {
    queue_projected_norms_of_type<F16Format>(queue, plan);
  }
}

}  // namespace winnow::device
