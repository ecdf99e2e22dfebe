// Tiles of 16 entries in the attention of a step. The tensor cores compute transposed products, S^T = K Q^T and O^T =
// V^T P^T, so that the query heads are eight columns, not sixteen rows:
//   K is the left factor directly from memory: a lane's 16 bytes are the numbers k of two products, and Q's rows are
//     stored in the same order of k;
//   V^T is made from 16 bytes of four entries by pairing numbers of two entries in registers, which permutes O's rows;
//   P^T consists of S^T's registers, with each 8 x 8 block transposed.
// Q is split into two 16-bit terms, so that scores are nearly those of float32; so is P if values are bf16.
//
// Codes become float16 numbers as they are loaded, in their rotated coordinates: their products are taken with a
// rotated query, and a warp rotates the sums of values where pages of another kind begin. The product of the query with
// the keys' origin, which is taken once, is added to the scores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/codes-inl.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"
#include "device/kernels/step_slices-inl.h"

namespace winnow::device::step {

inline constexpr int kTile = 16;  // entries of a product
// Weights are at most 2^14, not 1, while they are summed, so that float16 represents more of the small ones.
inline constexpr float kHeadRoom = 14.0F;
inline constexpr float kNoScore = -__builtin_huge_valf();

template <bool kIsBf16>
WINNOW_DEVICE void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (kIsBf16) {
    simt::mma_bf16(d, a, b);
  } else {
    simt::mma_f16(d, a, b);
  }
}

// Splits two numbers into two terms each.
template <bool kIsBf16>
WINNOW_DEVICE void split(float x, float y, std::uint32_t& high, std::uint32_t& low) {
  if constexpr (kIsBf16) {
    high = simt::pack_bf16(x, y);
    low = simt::pack_bf16(x - simt::low_bf16(high), y - simt::high_bf16(high));
  } else {
    high = simt::pack_f16(in_f16_range(x), in_f16_range(y));
    low = simt::pack_f16(in_f16_range(x - simt::low_f16(high)), in_f16_range(y - simt::high_f16(high)));
  }
}

// A Variant says what a kernel is compiled for: the number of a key's chunks of 32 numbers and of a value's chunks of
// 64; whether rows may have fewer numbers; the types of rows. If pages may hold codes, the others hold float16.
template <int key_chunks, int value_chunks, bool is_padded, bool has_bf16_keys, bool has_bf16_values, bool has_codes>
struct Variant {
  static constexpr int kKeyChunks = key_chunks, kValueChunks = value_chunks;
  static constexpr bool kIsPadded = is_padded, kHasCodes = has_codes;
  static constexpr bool kBf16Keys = has_bf16_keys, kBf16Values = has_bf16_values;
};

// The number of blocks for which a multiprocessor must have registers. A step of one sequence has up to 512 items: if
// four blocks fit, a GPU like an H100 runs all of them at once.
template <class V>
inline constexpr int kBlocks = V::kKeyChunks > 4                                                       ? 2
                               : V::kKeyChunks > 2 && (V::kIsPadded || V::kBf16Values || V::kHasCodes) ? 3
                                                                                                       : 4;

// A warp's state: the tiles of a slice that it takes in turn, and the lane's part of them.
template <class V>
class WarpState {
  static constexpr int kKeyChunks = V::kKeyChunks, kValueChunks = V::kValueChunks;
  static constexpr bool kIsPadded = V::kIsPadded, kHasCodes = V::kHasCodes;
  static constexpr bool kBf16Keys = V::kBf16Keys, kBf16Values = V::kBf16Values;

 public:
  // A row's terms in the order of fragments: its high and its low ones.
  using Query = simt::Words4[2][kKeyChunks][32];

  WINNOW_DEVICE WarpState(const LayerAttention& layer, const Cut& cut)
      : first_slot_(cut.first_slot), end_slot_(cut.end_slot) {
    key_dim_ = kIsPadded ? layer.key_dim : 32 * kKeyChunks;
    value_dim_ = kIsPadded ? layer.value_dim : 64 * kValueChunks;
    r_ = simt::lane() / 4;
    c_ = simt::lane() % 4;
  }

  // Begins the tiles first, first + kWarps, ... before `end`. Returns the PageRows of the lane's tile among the first
  // 32.
  WINNOW_DEVICE simt::Words4 find_pages(int first, int end, const PageRows* head_pages) {
    first_ = first;
    end_ = end;
    if (first >= end) return {};
    constexpr int kPageTiles = kPageSlots / kTile;
    const int tile = simt::min(first + simt::lane() * kWarps, end - 1);
    return simt::load_16(head_pages + tile / kPageTiles);
  }

  // Writes the result of find_pages to shared memory. (Prefetching tiles to the second-level cache ahead of their turn
  // took a tenth of the bandwidth of long lists on an H100.)
  WINNOW_DEVICE void write_pages(const simt::Words4& rows, simt::Words4 (&pages)[32]) const {
    if (first_ >= end_) return;
    pages[simt::lane()] = rows;
  }

  // Attends to these tiles, and to all others before the end.
  //   q: the query, and its rotation if there may be codes
  WINNOW_DEVICE void attend(const Query (&q)[kHasCodes ? 2 : 1], float soft_cap, const Item& item,
                            simt::Words4 (&pages)[32]) {
    if constexpr (kHasCodes) multiply_origin(item.head.origin, q[0]);
    unit_[0] = unit_[1] = kNoScore;
    sum_[0] = sum_[1] = 0;
    WINNOW_UNROLL
    for (auto& chunk : out_) {
      WINNOW_UNROLL
      for (auto& tile : chunk) {
        WINNOW_UNROLL
        for (float& x : tile) x = 0;
      }
    }
    WINNOW_NO_UNROLL
    while (first_ < end_) {
      simt::warp_barrier();
      const simt::Words4* page = pages;
      const int batch_end = simt::min(end_, first_ + 32 * kWarps);
      simt::Words4 keys[2][kKeyChunks];
      load_keys(keys, page, first_);
      WINNOW_NO_UNROLL
      for (int tile = first_; tile < batch_end; tile += kWarps, ++page) {
        const int next = tile + kWarps;
        float scores[4];
        if constexpr (kHasCodes) {
          const EntryType type = code_type(page->x[0]);
          multiply_keys(scores, keys, q[is_rotated(type) ? 1 : 0]);
          if (type != EntryType::kF32) {
            WINNOW_UNROLL
            for (int i = 0; i < 4; ++i) scores[i] += of_origin_[i % 2];
          }
          rotate_sums(is_rotated(code_type(page->x[2])));
          cap_and_mask(scores, soft_cap, tile);
          if constexpr (kValueChunks > 2) {
            add_by_chunk(scores, page, tile);
          } else {
            simt::Words4 values[kValueChunks][4];
            simt::warp_barrier();  // compilers move no load across it
            load_values(values, page, tile);
            add(scores, values);
          }
        } else {
          simt::Words4 values[kValueChunks][4];
          if constexpr (kOverlaps) {
            load_values(values, page, tile);
            multiply_keys(scores, keys, q[0]);
            if (next < batch_end) load_keys(keys, page + 1, next);
          } else {
            multiply_keys(scores, keys, q[0]);
            simt::warp_barrier();  // compilers move no load across it
            load_values(values, page, tile);
          }
          cap_and_mask(scores, soft_cap, tile);
          add(scores, values);
        }
        if constexpr (!kOverlaps) {
          simt::warp_barrier();
          if (next < batch_end) load_keys(keys, page + 1, next);
        }
      }
      simt::warp_barrier();
      write_pages(find_pages(first_ + 32 * kWarps, end_, item.head.pages), pages);
    }
    if constexpr (kHasCodes) rotate_sums(false);
  }

  // Writes the state to shared memory.
  template <class SharedMemory>
  WINNOW_DEVICE void write(SharedMemory& shared) {
    const int warp = simt::thread_anew() / 32;
    WINNOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      sum_[h] = simt::sum_lanes<4, 32>(sum_[h]);
      const int head = 2 * c_ + h;
      if (r_ == 0) {
        shared.unit[warp][head] = unit_[h];
        shared.sum[warp][head] = sum_[h];
      }
      if (head >= shared.items.item.n_heads) continue;
      WINNOW_UNROLL
      for (int i = 0; i < kValueChunks; ++i) {
        float* to = &shared.out[warp][head][64 * i + 8 * r_];
        WINNOW_UNROLL
        for (int t = 0; t < 4; ++t) {
          to[2 * t] = out_[i][t][h];
          to[2 * t + 1] = out_[i][t][2 + h];
        }
      }
    }
  }

 private:
  // True if the next tile's keys are loaded while a tile's values are used: if there are registers for both.
  static constexpr bool kOverlaps = !kHasCodes && (kKeyChunks <= 2 || kBlocks<V> == 3);

  // Returns the slot, or the nearest one that the row sees, which is in the same tile: other slots may hold any bits,
  // and zero times infinity or NaN is not zero.
  WINNOW_DEVICE int seen_slot(int slot) const {
    return simt::max(first_slot_, simt::min(slot, end_slot_ - 1)) % kPageSlots;
  }

  // Loads keys[x][j]: numbers 32 j + 8 c .. + 7 of entry r + 8 x. Beyond key_dim, where Q is zero, it loads other
  // numbers.
  WINNOW_DEVICE void load_keys(simt::Words4 (&keys)[2][kKeyChunks], const simt::Words4* page, int tile) const {
    const simt::Words4 rows = simt::load_shared_16(page);
    if constexpr (kHasCodes) {
      if (const EntryType type = code_type(rows.x[0]); type != EntryType::kF32) {
        const CodedRow layout(type, key_dim_);
        const auto* all = simt::pointer_of<const std::byte>(without_row_type(rows.x[0]), rows.x[1]);
        constexpr int kAtOnce = kKeyChunks > 4 ? 1 : 2;  // rows whose codes are loaded before any is used
        with_code(type, [&](auto code) {
          WINNOW_UNROLL
          for (int first = 0; first < 2; first += kAtOnce) {
            if constexpr (kAtOnce < 2) simt::warp_barrier();  // no load moves across it
            codes::Eight eights[kAtOnce][kKeyChunks];
            WINNOW_UNROLL
            for (int x = 0; x < kAtOnce; ++x) {
              const std::byte* row = all + seen_slot(tile * kTile + r_ + 8 * (first + x)) * layout.bytes;
              WINNOW_UNROLL
              for (int j = 0; j < kKeyChunks; ++j) {
                const int at = 32 * j + 8 * c_;
                eights[x][j] = load_codes(code, layout, row, kIsPadded && at >= key_dim_ ? 0 : at);
              }
            }
            WINNOW_UNROLL
            for (int x = 0; x < kAtOnce; ++x) {
              WINNOW_UNROLL
              for (int j = 0; j < kKeyChunks; ++j) keys[first + x][j] = numbers_of(code, eights[x][j]);
            }
          }
        });
        return;
      }
    }
    const auto* all = simt::pointer_of<const std::byte>(rows.x[0], rows.x[1]);
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      const std::byte* row = all + 2 * seen_slot(tile * kTile + r_ + 8 * x) * key_dim_;
      WINNOW_UNROLL
      for (int j = 0; j < kKeyChunks; ++j) {
        const int at = 32 * j + 8 * c_;
        keys[x][j] = simt::load_16(row + (kIsPadded && at >= key_dim_ ? 0 : 2 * at));
      }
    }
  }

  // Loads values[i][x]: numbers 64 i + 8 r .. + 7 of entry 2 c, 2 c + 1, 2 c + 8 or 2 c + 9. Beyond value_dim, where O
  // is not written, it loads other numbers.
  WINNOW_DEVICE void load_values(simt::Words4 (&values)[kValueChunks][4], const simt::Words4* page, int tile) const {
    const simt::Words4 rows = simt::load_shared_16(page);
    if constexpr (kHasCodes) {
      if (code_type(rows.x[2]) != EntryType::kF32) return load_codes_of_values<kValueChunks>(values, rows, tile, 0);
    }
    const auto* all = simt::pointer_of<const std::byte>(rows.x[2], rows.x[3]);
    WINNOW_UNROLL
    for (int x = 0; x < 4; ++x) {
      const std::byte* row = all + 2 * seen_slot(tile * kTile + 2 * c_ + x % 2 + x / 2 * 8) * value_dim_;
      WINNOW_UNROLL
      for (int i = 0; i < kValueChunks; ++i) {
        const int at = 64 * i + 8 * r_;
        values[i][x] = simt::load_16(row + (kIsPadded && at >= value_dim_ ? 0 : 2 * at));
      }
    }
  }

  // Loads kCount chunks of values from a page of codes, from `first_chunk` on.
  template <int kCount>
  WINNOW_DEVICE void load_codes_of_values(simt::Words4 (&values)[kCount][4], const simt::Words4& rows, int tile,
                                          int first_chunk) const {
    const EntryType type = code_type(rows.x[2]);
    const CodedRow layout(type, value_dim_);
    const auto* all = simt::pointer_of<const std::byte>(without_row_type(rows.x[2]), rows.x[3]);
    with_code(type, [&](auto code) {
      codes::Eight eights[kCount][4];
      WINNOW_UNROLL
      for (int x = 0; x < 4; ++x) {
        const std::byte* row = all + seen_slot(tile * kTile + 2 * c_ + x % 2 + x / 2 * 8) * layout.bytes;
        WINNOW_UNROLL
        for (int i = 0; i < kCount; ++i) {
          const int at = 64 * (first_chunk + i) + 8 * r_;
          eights[i][x] = load_codes(code, layout, row, kIsPadded && at >= value_dim_ ? 0 : at);
        }
      }
      WINNOW_UNROLL
      for (int i = 0; i < kCount; ++i) {
        WINNOW_UNROLL
        for (int x = 0; x < 4; ++x) values[i][x] = numbers_of(code, eights[i][x]);
      }
    });
  }

  // Adds a tile like add(), a chunk of values at a time: there are no registers for more.
  WINNOW_DEVICE void add_by_chunk(const float (&scores)[4], const simt::Words4* page, int tile) {
    Weights weights;
    weigh(scores, weights);
    const simt::Words4 rows = simt::load_shared_16(page);
    WINNOW_UNROLL
    for (int i = 0; i < kValueChunks; ++i) {
      simt::warp_barrier();  // no load moves across it
      simt::Words4 values[1][4];
      if (code_type(rows.x[2]) != EntryType::kF32) {
        load_codes_of_values<1>(values, rows, tile, i);
      } else {
        const auto* all = simt::pointer_of<const std::byte>(rows.x[2], rows.x[3]);
        const int at = 64 * i + 8 * r_;
        WINNOW_UNROLL
        for (int x = 0; x < 4; ++x) {
          const int slot = seen_slot(tile * kTile + 2 * c_ + x % 2 + x / 2 * 8);
          values[0][x] = simt::load_16(all + 2 * (slot * value_dim_ + (kIsPadded && at >= value_dim_ ? 0 : at)));
        }
      }
      multiply_values(out_[i], values[0], weights);
    }
  }

  // Computes the scores of the origin with heads 2 c and 2 c + 1, as if all entries of a tile were the origin.
  WINNOW_DEVICE void multiply_origin(const std::byte* origin, const Query& q) {
    of_origin_[0] = of_origin_[1] = 0;
    if (origin == nullptr) return;
    simt::Words4 keys[2][kKeyChunks];
    WINNOW_UNROLL
    for (int j = 0; j < kKeyChunks; ++j) {
      const int at = 32 * j + 8 * c_;
      keys[0][j] = keys[1][j] = simt::load_16(origin + (kIsPadded && at >= key_dim_ ? 0 : 2 * at));
    }
    float scores[4];
    multiply_keys(scores, keys, q);
    of_origin_[0] = scores[0];
    of_origin_[1] = scores[1];
  }

  // Rotates the sums, if they are not as they should be: into the coordinates of rotated values, or back, which is the
  // same. A lane has numbers 64 i + 8 r + 2 t and the next of its heads; bits 3 to 5 of a number are those of r.
  WINNOW_DEVICE void rotate_sums(bool is_rotated_next) {
    if (is_rotated_next == is_rotated_) return;
    is_rotated_ = is_rotated_next;
    const int block = kIsPadded ? rotated_block(value_dim_) : kValueChunks == 1 ? 64 : 128;
    const auto butterfly = [](float& a, float& b) {
      const float sum = a + b;
      b = a - b;
      a = sum;
    };
    WINNOW_UNROLL
    for (auto& chunk : out_) {
      WINNOW_UNROLL
      for (int h = 0; h < 2; ++h) {
        WINNOW_UNROLL
        for (auto& tile : chunk) butterfly(tile[h], tile[2 + h]);
        WINNOW_UNROLL
        for (int x = h; x < 4; x += 2) {
          butterfly(chunk[0][x], chunk[1][x]);
          butterfly(chunk[2][x], chunk[3][x]);
          butterfly(chunk[0][x], chunk[2][x]);
          butterfly(chunk[1][x], chunk[3][x]);
        }
      }
    }
    WINNOW_NO_UNROLL
    for (int stride = 8; stride < simt::min(block, 64); stride *= 2) {
      const int mask = stride / 2;  // lane 4 r + c
      WINNOW_UNROLL
      for (auto& chunk : out_) {
        WINNOW_UNROLL
        for (auto& tile : chunk) {
          WINNOW_UNROLL
          for (float& x : tile) {
            const float other = simt::shuffle_xor(x, mask);
            x = (simt::lane() & mask) != 0 ? other - x : x + other;
          }
        }
      }
    }
    if constexpr (kValueChunks > 1) {
      if (block == 128) {
        WINNOW_UNROLL
        for (int i = 0; i < kValueChunks; i += 2) {
          WINNOW_UNROLL
          for (int t = 0; t < 4; ++t) {
            WINNOW_UNROLL
            for (int x = 0; x < 4; ++x) butterfly(out_[i][t][x], out_[i + 1][t][x]);
          }
        }
      }
    }
    const float norm = 1.0F / simt::sqrt(static_cast<float>(block));
    WINNOW_UNROLL
    for (auto& chunk : out_) {
      WINNOW_UNROLL
      for (auto& tile : chunk) {
        WINNOW_UNROLL
        for (float& x : tile) x *= norm;
      }
    }
  }

  // Computes scores: of entry r with heads 2 c, 2 c + 1, then of entry r + 8.
  WINNOW_DEVICE void multiply_keys(float (&scores)[4], const simt::Words4 (&keys)[2][kKeyChunks],
                                   const Query& q) const {
    float high[2][4] = {};
    float low[2][4] = {};
    WINNOW_UNROLL
    for (int j = 0; j < kKeyChunks; ++j) {
      const simt::Words4 q_high = simt::load_shared_16(&q[0][j][simt::lane()]);
      const simt::Words4 q_low = simt::load_shared_16(&q[1][j][simt::lane()]);
      WINNOW_UNROLL
      for (int s = 0; s < 2; ++s) {
        const std::uint32_t a[4] = {keys[0][j].x[2 * s], keys[1][j].x[2 * s], keys[0][j].x[2 * s + 1],
                                    keys[1][j].x[2 * s + 1]};
        multiply<kBf16Keys>(high[s], a, {q_high.x[2 * s], q_high.x[2 * s + 1]});
        multiply<kBf16Keys>(low[s], a, {q_low.x[2 * s], q_low.x[2 * s + 1]});
      }
    }
    WINNOW_UNROLL
    for (int i = 0; i < 4; ++i) scores[i] = (high[0][i] + high[1][i]) + (low[0][i] + low[1][i]);
  }

  WINNOW_DEVICE void cap_and_mask(float (&scores)[4], float soft_cap, int tile) const {
    if (soft_cap > 0) {
      WINNOW_UNROLL
      for (float& s : scores) s = soft_cap * kLog2e * simt::tanh(s / soft_cap);
    }
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      const int slot = tile * kTile + r_ + 8 * x;
      if (slot >= first_slot_ && slot < end_slot_) continue;
      scores[2 * x] = scores[2 * x + 1] = kNoScore;
    }
  }

  // The weights of a tile's entries in two 16-bit terms, as the right factor of products with values.
  struct Weights {
    std::uint32_t high[2];
    std::uint32_t low[2];  // only if values are bf16
  };

  // Adds a tile, of which the row sees at least one entry.
  WINNOW_DEVICE void add(const float (&scores)[4], const simt::Words4 (&values)[kValueChunks][4]) {
    Weights weights;
    weigh(scores, weights);
    WINNOW_UNROLL
    for (int i = 0; i < kValueChunks; ++i) multiply_values(out_[i], values[i], weights);
  }

  // Turns scores into weights, in the larger unit of these and the entries so far.
  WINNOW_DEVICE void weigh(const float (&scores)[4], Weights& terms) {
    float factor[2];
    float weights[4];
    WINNOW_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float most = simt::max_lanes<4, 32>(simt::max(scores[h], scores[2 + h]));
      const float unit = simt::max(unit_[h], most - kHeadRoom);
      factor[h] = simt::exp2(unit_[h] - unit);
      unit_[h] = unit;
      weights[h] = simt::exp2(scores[h] - unit);
      weights[2 + h] = simt::exp2(scores[2 + h] - unit);
      sum_[h] *= factor[h];
    }
    WINNOW_UNROLL
    for (auto& chunk : out_) {
      WINNOW_UNROLL
      for (auto& tile : chunk) {
        WINNOW_UNROLL
        for (int i = 0; i < 4; ++i) tile[i] *= factor[i % 2];
      }
    }
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      if constexpr (kBf16Values) {
        split<true>(weights[2 * x], weights[2 * x + 1], terms.high[x], terms.low[x]);
      } else {
        // The rounded weights are summed, so that their shares add up to one.
        terms.high[x] = simt::pack_f16(weights[2 * x], weights[2 * x + 1]);
        weights[2 * x] = simt::low_f16(terms.high[x]);
        weights[2 * x + 1] = simt::high_f16(terms.high[x]);
      }
      sum_[0] += weights[2 * x];
      sum_[1] += weights[2 * x + 1];
      terms.high[x] = simt::transpose_matrix(terms.high[x]);
      if constexpr (kBf16Values) terms.low[x] = simt::transpose_matrix(terms.low[x]);
    }
  }

  WINNOW_DEVICE static void multiply_values(float (&out)[4][4], const simt::Words4 (&values)[4],
                                            const Weights& weights) {
    WINNOW_UNROLL
    for (int t = 0; t < 4; ++t) {
      // Rows r and r + 8 of the product are the numbers 2 t and 2 t + 1 of the 16 bytes.
      const std::uint32_t a[4] = {simt::permute_bytes(values[0].x[t], values[1].x[t], 0x5410U),
                                  simt::permute_bytes(values[0].x[t], values[1].x[t], 0x7632U),
                                  simt::permute_bytes(values[2].x[t], values[3].x[t], 0x5410U),
                                  simt::permute_bytes(values[2].x[t], values[3].x[t], 0x7632U)};
      multiply<kBf16Values>(out[t], a, weights.high);
      if constexpr (kBf16Values) multiply<kBf16Values>(out[t], a, weights.low);
    }
  }

  int first_slot_, end_slot_;
  int key_dim_, value_dim_;
  int first_ = 0, end_ = 0;
  int r_, c_;      // the lane's row, and pair of columns, in fragments
  float unit_[2];  // of heads 2 c and 2 c + 1: weights are 2^(score - unit)
  float sum_[2];   // over the entries that the lane has seen
  float out_[kValueChunks][4][4];
  // If there may be codes:
  float of_origin_[2];       // scores of the keys' origin with these heads
  bool is_rotated_ = false;  // out_ is in the coordinates of rotated values
};

}  // namespace winnow::device::step
