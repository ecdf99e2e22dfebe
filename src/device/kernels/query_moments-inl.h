// Moments of queries before rotation, and keys' expected scores for queries with such moments (expected-attention):
// small products in float32, without tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/entry_tiles-inl.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {

inline constexpr int kMomentThreads = 256;  // each has 4 x 4 numbers of a tile of 64 x 64
inline constexpr int kMomentTile = 64;
inline constexpr int kMomentRows = 32;  // rows whose products are summed in float32

// Computes to[4][4] += left' right, for rows [n_rows] of 64 numbers each in shared memory.
template <int kLeftPitch>
WINNOW_DEVICE void add_outer_products(const float* left, const float* right, int n_rows, float (&to)[4][4]) {
  for (int row = 0; row < n_rows; ++row) {
    const FourFloats a = *reinterpret_cast<const FourFloats*>(left + row * kLeftPitch);
    const FourFloats b = *reinterpret_cast<const FourFloats*>(right + row * kMomentTile);
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) {
      WINNOW_UNROLL
      for (int j = 0; j < 4; ++j) to[i][j] = simt::fma(a.x[i], b.x[j], to[i][j]);
    }
  }
}

// Loads numbers [column, column + 64) of rows [0, kMomentRows), `pitch` numbers apart; missing numbers become zeros.
WINNOW_DEVICE void load_moment_rows(const float* from, std::int64_t pitch, int n_rows, int column, int n_columns,
                                    float* to) {
  constexpr int kWords = kMomentTile / 4;
  for (int i = simt::thread(); i < kMomentRows * kWords; i += kMomentThreads) {
    const int row = i / kWords, at = column + i % kWords * 4;
    FourFloats four = {};
    if (row < n_rows && at < n_columns) four = *reinterpret_cast<const FourFloats*>(from + row * pitch + at);
    *reinterpret_cast<FourFloats*>(to + i * 4) = four;
  }
}

// Block (x, y) takes tile x of head y's outer products. Plan is QueryMoments.
template <class Plan>
WINNOW_KERNEL void WINNOW_THREADS(kMomentThreads, 2) query_moments_kernel(Plan p) {
  const int n_tiles = (p.key_dim + kMomentTile - 1) / kMomentTile, head = simt::block_y();
  const int first = simt::block_x() / n_tiles * kMomentTile, second = simt::block_x() % n_tiles * kMomentTile;
  const std::int64_t pitch = static_cast<std::int64_t>(p.n_head) * p.key_dim;
  const float* const q = p.q + static_cast<std::int64_t>(head) * p.key_dim;
  float* const left = reinterpret_cast<float*>(simt::shared());
  float* const right = left + kMomentRows * kMomentTile;
  const int i = simt::thread() / 16 * 4, j = simt::thread() % 16 * 4;
  const bool sums = second == 0 && simt::thread() < kMomentTile;
  double outer[4][4] = {}, sum = 0.0;
  for (int row = 0; row < p.n_rows; row += kMomentRows) {
    const int n_rows = simt::min(kMomentRows, p.n_rows - row);
    simt::barrier();
    load_moment_rows(q + row * pitch, pitch, n_rows, first, p.key_dim, left);
    load_moment_rows(q + row * pitch, pitch, n_rows, second, p.key_dim, right);
    simt::barrier();
    float products[4][4] = {};
    add_outer_products<kMomentTile>(left + i, right + j, kMomentRows, products);
    WINNOW_UNROLL
    for (int a = 0; a < 4; ++a) {
      WINNOW_UNROLL
      for (int b = 0; b < 4; ++b) outer[a][b] += static_cast<double>(products[a][b]);
    }
    for (int r = 0; sums && r < n_rows; ++r) {
      sum += static_cast<double>(left[r * kMomentTile + simt::thread()]);
    }
  }
  WINNOW_UNROLL
  for (int a = 0; a < 4; ++a) {
    WINNOW_UNROLL
    for (int b = 0; b < 4; ++b) {
      if (first + i + a >= p.key_dim || second + j + b >= p.key_dim) continue;
      double& to = p.outer[(static_cast<std::int64_t>(head) * p.key_dim + first + i + a) * p.key_dim + second + j + b];
      to = p.adds ? to + outer[a][b] : outer[a][b];
    }
  }
  if (sums && first + simt::thread() < p.key_dim) {
    double& to = p.sum[static_cast<std::int64_t>(head) * p.key_dim + first + simt::thread()];
    to = p.adds ? to + sum : sum;
  }
}

// Queues the moments. q is 16-byte aligned.
inline void queue_query_moments(simt::Queue& queue, const QueryMoments& plan) {
  const unsigned n_tiles = static_cast<unsigned>((plan.key_dim + kMomentTile - 1) / kMomentTile);
  simt::launch(queue, {.x = n_tiles * n_tiles, .y = static_cast<unsigned>(plan.n_head)}, kMomentThreads,
               2 * kMomentRows * kMomentTile * sizeof(float), query_moments_kernel<QueryMoments>, plan);
}

inline constexpr int kExpectedPitch = kMomentTile + 4;  // floats from one number of 64 keys to the next, in shared
                                                        // memory

// Block (x, y) takes 64 entries that query head y sees.
template <class Format>
WINNOW_KERNEL void WINNOW_THREADS(kMomentThreads, 2) expected_scores_kernel(ExpectedScores p) {
  const int head = simt::block_y(), dim = p.layer.key_dim;
  const HeadTable table = p.heads[head / (p.layer.n_head / p.layer.n_kv_head)];
  const std::int32_t first = simt::block_x() * kMomentTile;
  if (first >= table.n_entries) return;
  const int padded = (dim + kMomentTile - 1) / kMomentTile * kMomentTile;
  float* const keys = reinterpret_cast<float*>(simt::shared());  // [padded][kExpectedPitch]
  float* const matrix = keys + padded * kExpectedPitch;          // [kMomentRows][kMomentTile]
  for (int i = simt::thread(); i < padded / 8 * kMomentTile; i += kMomentThreads) {
    const int entry = i % kMomentTile, word = i / kMomentTile;
    simt::Words4 words = {};
    if (first + entry < table.n_entries && word * 8 < dim) {
      const std::int32_t slot = table.first_slot + first + entry;
      const PageRows page = table.pages[slot / kPageSlots];
      words = simt::load_16(page.keys + (slot % kPageSlots * dim + word * 8) * 2);
    }
    WINNOW_UNROLL
    for (int pair = 0; pair < 4; ++pair) {
      keys[(word * 8 + pair * 2) * kExpectedPitch + entry] = Format::low(words.x[pair]);
      keys[(word * 8 + pair * 2 + 1) * kExpectedPitch + entry] = Format::high(words.x[pair]);
    }
  }
  const float* const covariance = p.covariance + static_cast<std::int64_t>(head) * dim * dim;
  const float* const mean = p.mean + static_cast<std::int64_t>(head) * dim;
  const int entry = simt::thread() / 16 * 4, column = simt::thread() % 16 * 4;
  const float half_square = 0.5F * p.layer.scale * p.layer.scale;
  float scores[4] = {};
  for (int second = 0; second < dim; second += kMomentTile) {
    float products[4][4] = {};  // products of the entries' keys with four columns of the covariance
    for (int row = 0; row < dim; row += kMomentRows) {
      simt::barrier();
      load_moment_rows(covariance + static_cast<std::int64_t>(row) * dim, dim, dim - row, second, dim, matrix);
      simt::barrier();
      add_outer_products<kExpectedPitch>(keys + row * kExpectedPitch + entry, matrix + column, kMomentRows, products);
    }
    WINNOW_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int at = second + column + j;
      const float linear = at < dim ? mean[at] * p.layer.scale : 0.0F;
      WINNOW_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float key = keys[at * kExpectedPitch + entry + i];
        scores[i] = simt::fma(key, simt::fma(half_square, products[i][j], linear), scores[i]);
      }
    }
  }
  WINNOW_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float score = simt::sum_lanes<1, 16>(scores[i]);
    if (column == 0 && first + entry + i < table.n_entries) {
      p.scores[static_cast<std::int64_t>(head) * p.stride + first + entry + i] = score;
    }
  }
}

// Queues the scores. Keys are f16 or bf16, and the covariances are 16-byte aligned.
inline void queue_expected_scores(simt::Queue& queue, const ExpectedScores& plan) {
  if (plan.n_most <= 0) return;
  const int padded = (plan.layer.key_dim + kMomentTile - 1) / kMomentTile * kMomentTile;
  const std::size_t shared =
      static_cast<std::size_t>(padded * kExpectedPitch + kMomentRows * kMomentTile) * sizeof(float);
  const simt::Grid grid = {.x = static_cast<unsigned>((plan.n_most + kMomentTile - 1) / kMomentTile),
                           .y = static_cast<unsigned>(plan.layer.n_head)};
  const bool is_bf16 = plan.layer.key_type == EntryType::kBF16;
  simt::launch(queue, grid, kMomentThreads, shared,
               is_bf16 ? expected_scores_kernel<BF16Format> : expected_scores_kernel<F16Format>, plan);
}

}  // namespace winnow::device
