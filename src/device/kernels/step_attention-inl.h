// Ragged decode attention: one new row for each of many sequences, over pages of f16, bf16 or codes, where each head
// has its own length.
//
// A head's entries are cut into slices of whole pages that depend on the head's own length alone, so that a sequence
// gets the same bits alone and in a batch. Blocks take the slices of all heads in turn; a slice is computed for the (up
// to eight) query heads of a KV head at once. A block's four warps take tiles of 16 entries in turn. The tensor cores
// compute transposed products, S^T = K Q^T and O^T = V^T P^T, so that the query heads are eight columns, not sixteen
// rows:
//   K is the left factor directly from memory: a lane's 16 bytes are the numbers k of two products, and Q's rows are
//     stored in the same order of k;
//   V^T is made from 16 bytes of four entries by pairing numbers of two entries in registers, which permutes O's rows;
//   P^T consists of S^T's registers, with each 8 x 8 block transposed.
// Q is split into two 16-bit terms, so that scores are nearly those of float32; so is P if values are bf16.
//
// Codes become float16 numbers as they are loaded, in their rotated coordinates: their products are taken with a
// rotated query, and a warp rotates the sums of values where pages of another kind begin. The product of the query with
// the keys' origin, which is taken once, is added to the scores.
//
// States of warps are merged in shared memory. The block that finishes a head's last slice merges the states of its
// slices, in their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel_plans.h"
#include "device/kernels/codes-inl.h"
#include "device/kernels/rows-inl.h"
#include "device/kernels/simt.h"

namespace winnow::device {
namespace step {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kHeads = 8;  // query heads at once
inline constexpr int kTile = 16;  // entries of a product
inline constexpr int kLeastSlicePages = 8;
inline constexpr float kLog2e = 1.44269504088896F;
// Weights are at most 2^14, not 1, while they are summed, so that float16 represents more of the small ones.
inline constexpr float kHeadRoom = 14.0F;
inline constexpr float kNoScore = -__builtin_huge_valf();

// The slots (first_slot + entry) of a head that the row sees, and their slices.
struct Cut {
  int first_slot, end_slot;
  int first_page, end_page;
  int slice_pages;
  int n_slices;
};

WINNOW_DEVICE Cut cut_head(const HeadTable& head, int window) {
  Cut cut;
  const int hidden = window > 0 ? simt::max(0, head.n_entries - window) : 0;
  cut.first_slot = head.first_slot + hidden;
  cut.end_slot = head.first_slot + head.n_entries;
  cut.first_page = cut.first_slot / kPageSlots;
  cut.end_page = simt::max((cut.end_slot + kPageSlots - 1) / kPageSlots, cut.first_page + 1);
  const int n_pages = cut.end_page - cut.first_page;
  cut.slice_pages = simt::max(kLeastSlicePages, (n_pages + kMaxStepSlices - 1) / kMaxStepSlices);
  cut.n_slices = (n_pages + cut.slice_pages - 1) / cut.slice_pages;
  return cut;
}

// The workspace: counters of finished slices [n_sequences][n_head], then the slices' outputs and states.
struct Workspace {
  int* finished;
  float* out;    // [n_sequences][n_head][kMaxStepSlices][value_dim]
  float* state;  // [n_sequences][n_head][kMaxStepSlices][2] the exponent of the weights' unit, and their sum
};

WINNOW_DEVICE Workspace workspace_of(const StepAttention& plan) {
  const std::size_t n_rows = static_cast<std::size_t>(plan.n_sequences) * static_cast<std::size_t>(plan.layer.n_head);
  auto* out = reinterpret_cast<float*>(plan.workspace + (n_rows * sizeof(int) + 255) / 256 * 256);
  return {reinterpret_cast<int*>(plan.workspace), out,
          out + n_rows * kMaxStepSlices * static_cast<std::size_t>(plan.layer.value_dim)};
}

// A block's unit of work: a slice, for some of the query heads of its KV head.
struct Item {
  int row;  // sequence x KV head
  int part;
  int slice;
  int n_slices;
  int first_head, n_heads;
  int query_row;  // sequence x query head, of the first head
  HeadTable head;
};

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

// What a kernel is compiled for: the number of a key's chunks of 32 numbers and of a value's chunks of 64; whether rows
// may have fewer numbers; the types of rows. If pages may hold codes, the others hold float16.
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
      WINNOW_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) sum_[h] += simt::shuffle_xor(sum_[h], mask);
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
      float most = simt::max(scores[h], scores[2 + h]);
      WINNOW_UNROLL
      for (int mask = 4; mask < 32; mask *= 2) most = simt::max(most, simt::shuffle_xor(most, mask));
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

// The list of slices of all heads, of which each thread knows those of n_own rows. It lies in shared memory to spare
// registers.
struct ItemList {
  int own[kThreads];     // slices of the thread's rows
  int before[kThreads];  // slices of the rows before
  int of_warp[kWarps];
  int n_parts;  // of a KV head's group
  int n_items;
  int next;     // item
  float scale;  // of queries
  Item item;    // the item that was found last
};

WINNOW_DEVICE int rows_per_thread(const StepAttention& plan) {
  return (plan.n_sequences * plan.layer.n_kv_head + kThreads - 1) / kThreads;
}

// Makes the list. All threads call it, and may read the list after a barrier.
WINNOW_DEVICE void list_items(const StepAttention& plan, ItemList& list) {
  const int n_own = rows_per_thread(plan);
  const int first = simt::thread() * n_own;
  const int end = simt::min(first + n_own, plan.n_sequences * plan.layer.n_kv_head);
  int own = 0;
  constexpr int kAtOnce = 4;
  WINNOW_NO_UNROLL
  for (int row = first; row < end; row += kAtOnce) {
    HeadTable heads[kAtOnce];
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) heads[x] = load_head(plan.heads, simt::min(row + x, end - 1));
    WINNOW_UNROLL
    for (int x = 0; x < kAtOnce; ++x) own += row + x < end ? cut_head(heads[x], plan.layer.sliding_window).n_slices : 0;
  }
  int sum = own;  // of the warp's lanes up to this one
  WINNOW_UNROLL
  for (int step = 1; step < 32; step *= 2) {
    const int lower = simt::shuffle(sum, simt::max(0, simt::lane() - step));
    if (simt::lane() >= step) sum += lower;
  }
  if (simt::lane() == 31) list.of_warp[simt::warp()] = sum;
  simt::barrier();
  int before = sum - own;
  int n_slices = 0;
  WINNOW_UNROLL
  for (int w = 0; w < kWarps; ++w) {
    if (w < simt::warp()) before += list.of_warp[w];
    n_slices += list.of_warp[w];
  }
  list.own[simt::thread()] = own;
  list.before[simt::thread()] = before;
  if (simt::thread() == 0) {
    list.n_parts = (plan.layer.n_head / plan.layer.n_kv_head + kHeads - 1) / kHeads;
    list.n_items = n_slices * list.n_parts;
    list.next = simt::block_x();
    // If scores are capped, capping scales them to binary logarithms.
    list.scale = plan.layer.soft_cap > 0 ? plan.layer.scale : plan.layer.scale * kLog2e;
  }
}

// The thread to whose rows the next item belongs writes it to the list.
WINNOW_DEVICE void find_item(const StepAttention& plan, ItemList& list) {
  const int i = list.next;
  int slice = i / list.n_parts - list.before[simt::thread_anew()];
  if (slice < 0 || slice >= list.own[simt::thread_anew()]) return;
  int row = simt::thread_anew() * rows_per_thread(plan);
  HeadTable head = load_head(plan.heads, row);
  int n_slices = cut_head(head, plan.layer.sliding_window).n_slices;
  WINNOW_NO_UNROLL
  while (slice >= n_slices) {
    slice -= n_slices;
    head = load_head(plan.heads, ++row);
    n_slices = cut_head(head, plan.layer.sliding_window).n_slices;
  }
  if (plan.has_codes) head.origin = plan.heads[row].origin;
  const LayerAttention& layer = plan.layer;
  const int n_group = layer.n_head / layer.n_kv_head;
  const int part = i % list.n_parts;
  const int first_head = row % layer.n_kv_head * n_group + part * kHeads;
  list.item = {row,
               part,
               slice,
               n_slices,
               first_head,
               simt::min(kHeads, n_group - part * kHeads),
               row / layer.n_kv_head * layer.n_head + first_head,
               head};
}

// The block's shared memory.
template <class V>
struct Shared {
  // Rows of O start in different banks.
  static constexpr int kOutStride = 64 * V::kValueChunks + 20;

  typename WarpState<V>::Query q[V::kHasCodes ? 2 : 1];  // the query, and its rotation
  union {
    float out[kWarps][kHeads][kOutStride];
    float factors[kHeads][kMaxStepSlices];
  };
  simt::Words4 pages[kWarps][32];  // PageRows of the warp's next tiles
  float unit[kWarps][kHeads];
  float sum[kWarps][kHeads];
  ItemList items;
  int is_last;
};

// The thread's part of an item's query rows.
template <int kKeyChunks, bool kBf16Keys>
class QueryPart {
 public:
  // Rotates the rows, in blocks of a power of two numbers. A block's numbers are those of neighbouring lanes.
  WINNOW_DEVICE void rotate(int block) {
    static_assert((kEighths & (kEighths - 1)) == 0 && kThreads % kEighths == 0);
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      if (place(n) >= kHeads * kEighths) continue;
      float x[8];
      WINNOW_UNROLL
      for (int i = 0; i < 8; ++i) x[i] = simt::float_of(numbers_[n][i / 4].x[i % 4]);
      rotate_eighths(x, block);
      WINNOW_UNROLL
      for (int i = 0; i < 8; ++i) numbers_[n][i / 4].x[i % 4] = simt::bits_of(x[i]);
    }
  }

  WINNOW_DEVICE void load(const StepAttention& plan, const Item& item) {
    const int key_dim = plan.layer.key_dim;
    const float* q = plan.q + static_cast<std::size_t>(item.query_row) * static_cast<std::size_t>(key_dim);
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      const int head = place(n) / kEighths;
      const int first = 8 * (place(n) % kEighths);
      numbers_[n][0] = numbers_[n][1] = {};
      if (head >= item.n_heads || first >= key_dim) continue;
      numbers_[n][0] = simt::load_16(q + head * key_dim + first);
      numbers_[n][1] = simt::load_16(q + head * key_dim + first + 4);
    }
  }

  // Scales the rows, splits them and writes them to shared memory; zeros for missing heads.
  WINNOW_DEVICE void write(float scale, simt::Words4 (&to)[2][kKeyChunks][32]) const {
    WINNOW_UNROLL
    for (int n = 0; n < kCount; ++n) {
      if (place(n) >= kHeads * kEighths) continue;
      simt::Words4 high;
      simt::Words4 low;
      WINNOW_UNROLL
      for (int w = 0; w < 4; ++w) {
        const std::uint32_t* pair = &numbers_[n][w / 2].x[w % 2 * 2];
        split<kBf16Keys>(simt::float_of(pair[0]) * scale, simt::float_of(pair[1]) * scale, high.x[w], low.x[w]);
      }
      const int eighth = place(n) % kEighths;
      const int lane = 4 * (place(n) / kEighths) + eighth % 4;
      to[0][eighth / 4][lane] = high;
      to[1][eighth / 4][lane] = low;
    }
  }

 private:
  static constexpr int kEighths = 4 * kKeyChunks;  // of a row, eight numbers each
  static constexpr int kCount = (kHeads * kEighths + kThreads - 1) / kThreads;

  static WINNOW_DEVICE int place(int n) { return simt::thread_anew() + n * kThreads; }

  simt::Words4 numbers_[kCount][2];
};

// Returns the weight of a sink logit, in a state's unit.
WINNOW_DEVICE float sink_weight(const LayerAttention& layer, int head, float unit) {
  return layer.sink_logits == nullptr ? 0.0F : simt::exp2(layer.sink_logits[head] * kLog2e - unit);
}

// Merges the warps' states of a slice. Writes the result to the output if the head has no other slice, else to the
// workspace.
template <class SharedMemory>
WINNOW_DEVICE void merge_warps(const StepAttention& plan, const SharedMemory& shared) {
  const Item item = shared.items.item;
  const LayerAttention& layer = plan.layer;
  const int quarters = layer.value_dim / 4;
  for (int i = simt::thread_anew(); i < item.n_heads * quarters; i += kThreads) {
    const int h = i / quarters;
    const int d = i % quarters * 4;
    float unit = shared.unit[0][h];
    WINNOW_UNROLL
    for (int w = 1; w < kWarps; ++w) unit = simt::max(unit, shared.unit[w][h]);
    if (unit == kNoScore) unit = 0;
    float sum = 0;
    float out[4] = {};
    WINNOW_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const float factor = simt::exp2(shared.unit[w][h] - unit);
      sum += factor * shared.sum[w][h];
      WINNOW_UNROLL
      for (int x = 0; x < 4; ++x) out[x] += factor * shared.out[w][h][d + x];
    }
    const auto row = static_cast<std::size_t>(item.query_row + h);
    float* to = plan.out + row * static_cast<std::size_t>(layer.value_dim) + d;
    float factor = 1;
    if (item.n_slices == 1) {
      sum += sink_weight(layer, item.first_head + h, unit);
      factor = sum > 0 ? 1 / sum : 0.0F;
    } else {
      const Workspace workspace = workspace_of(plan);
      const std::size_t at = row * kMaxStepSlices + static_cast<std::size_t>(item.slice);
      to = workspace.out + at * static_cast<std::size_t>(layer.value_dim) + d;
      if (d == 0) {
        workspace.state[2 * at] = unit;
        workspace.state[2 * at + 1] = sum;
      }
    }
    simt::store_16(to, {{simt::bits_of(out[0] * factor), simt::bits_of(out[1] * factor), simt::bits_of(out[2] * factor),
                         simt::bits_of(out[3] * factor)}});
  }
}

// Merges the slices' states of a head, in their order.
template <class SharedMemory>
WINNOW_DEVICE void merge_slices(const StepAttention& plan, SharedMemory& shared) {
  const Item item = shared.items.item;
  const LayerAttention& layer = plan.layer;
  const Workspace workspace = workspace_of(plan);
  static_assert(kMaxStepSlices == 64);
  for (int h = simt::warp(); h < item.n_heads; h += kWarps) {
    const float* state = workspace.state + static_cast<std::size_t>(item.query_row + h) * kMaxStepSlices * 2;
    float unit[2], sum[2];
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      const int slice = simt::lane() + 32 * x;
      unit[x] = slice < item.n_slices ? state[2 * slice] : kNoScore;
      sum[x] = slice < item.n_slices ? state[2 * slice + 1] : 0.0F;
    }
    float most = simt::max(unit[0], unit[1]);
    WINNOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) most = simt::max(most, simt::shuffle_xor(most, mask));
    const float factor[2] = {simt::exp2(unit[0] - most), simt::exp2(unit[1] - most)};
    float total = factor[0] * sum[0] + factor[1] * sum[1];
    WINNOW_UNROLL
    for (int mask = 1; mask < 32; mask *= 2) total += simt::shuffle_xor(total, mask);
    total += sink_weight(layer, item.first_head + h, most);
    const float share = total > 0 ? 1 / total : 0.0F;
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) shared.factors[h][simt::lane() + 32 * x] = factor[x] * share;
  }
  simt::barrier();
  const int quarters = layer.value_dim / 4;
  for (int i = simt::thread_anew(); i < item.n_heads * quarters; i += kThreads) {
    const int h = i / quarters;
    const int d = i % quarters * 4;
    const auto row = static_cast<std::size_t>(item.query_row + h);
    const auto value_dim = static_cast<std::size_t>(layer.value_dim);
    const float* from = workspace.out + row * kMaxStepSlices * value_dim + d;
    float out[4] = {};
    constexpr int kAtOnce = 16;
    WINNOW_NO_UNROLL
    for (int first = 0; first < item.n_slices; first += kAtOnce) {
      simt::Words4 words[kAtOnce];
      WINNOW_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        words[s] = {};
        if (first + s < item.n_slices) words[s] = simt::load_16(from + static_cast<std::size_t>(first + s) * value_dim);
      }
      WINNOW_UNROLL
      for (int s = 0; s < kAtOnce; ++s) {
        const float factor = shared.factors[h][first + s];
        WINNOW_UNROLL
        for (int x = 0; x < 4; ++x) out[x] += factor * simt::float_of(words[s].x[x]);
      }
    }
    simt::store_16(plan.out + row * value_dim + d,
                   {{simt::bits_of(out[0]), simt::bits_of(out[1]), simt::bits_of(out[2]), simt::bits_of(out[3])}});
  }
}

// The thread's part of the step's own row, if the slice is a head's last: two numbers of the key and of the value.
// Every part of a group stores the same bytes and reads its own.
class OwnRowPart {
 public:
  WINNOW_DEVICE void load(const StepAttention& plan, const Item& item, const Cut& cut) {
    const LayerAttention& layer = plan.layer;
    static_assert(2 * kThreads >= 256);  // the most numbers of a row
    const int at = 2 * simt::thread_anew();
    const bool stores = item.slice == cut.n_slices - 1 && plan.k != nullptr;
    has_key_ = stores && at < layer.key_dim;
    has_value_ = stores && at < layer.value_dim;
    if (!has_key_ && !has_value_) return;
    const int slot = cut.end_slot - 1;
    page_ = load_page(item.head.pages, slot / kPageSlots);
    in_page_ = slot % kPageSlots;
    const auto row = static_cast<std::size_t>(item.row);
    WINNOW_UNROLL
    for (int x = 0; x < 2; ++x) {
      if (has_key_) key_[x] = plan.k[row * static_cast<std::size_t>(layer.key_dim) + at + x];
      if (has_value_) value_[x] = plan.v[row * static_cast<std::size_t>(layer.value_dim) + at + x];
    }
  }

  WINNOW_DEVICE void store(const LayerAttention& layer) const {
    const int at = 2 * simt::thread_anew();
    if (has_key_) {
      *reinterpret_cast<std::uint32_t*>(page_.keys + 2 * (in_page_ * layer.key_dim + at)) =
          pack_row_numbers(layer.key_type == EntryType::kBF16, key_[0], key_[1]);
    }
    if (has_value_) {
      *reinterpret_cast<std::uint32_t*>(page_.values + 2 * (in_page_ * layer.value_dim + at)) =
          pack_row_numbers(layer.value_type == EntryType::kBF16, value_[0], value_[1]);
    }
  }

 private:
  bool has_key_ = false;
  bool has_value_ = false;
  PageRows page_ = {};
  int in_page_ = 0;
  float key_[2] = {};
  float value_[2] = {};
};

// Returns true in all threads of the block that finishes last among a head's slices.
template <class SharedMemory>
WINNOW_DEVICE bool is_last_slice(const StepAttention& plan, SharedMemory& shared) {
  simt::barrier();
  if (simt::thread_anew() == 0) {
    simt::fence();  // also covers writes of the block's other threads before the barrier
    const Item item = shared.items.item;
    int* finished = workspace_of(plan).finished + item.row * shared.items.n_parts + item.part;
    const bool is_last = simt::atomic_add(finished, 1) == item.n_slices - 1;
    if (is_last) *finished = 0;
    shared.is_last = is_last ? 1 : 0;
    simt::fence();
  }
  simt::barrier();
  return shared.is_last != 0;
}

template <class V>
WINNOW_KERNEL void WINNOW_THREADS(kThreads, kBlocks<V>) attend(StepAttention plan) {
  using SharedMemory = Shared<V>;
  auto& shared = *reinterpret_cast<SharedMemory*>(simt::shared());
  list_items(plan, shared.items);
  simt::barrier();
  // Data that is needed after the loop over entries is read from shared memory again, since the loop leaves no
  // registers for it.
  while (shared.items.next < shared.items.n_items) {
    find_item(plan, shared.items);
    simt::barrier();
    {
      const Item item = shared.items.item;
      const Cut cut = cut_head(item.head, plan.layer.sliding_window);
      WarpState<V> state(plan.layer, cut);
      constexpr int kPageTiles = kPageSlots / kTile;
      const int first_page = cut.first_page + item.slice * cut.slice_pages;
      const int first_tile = simt::max(first_page * kPageTiles, cut.first_slot / kTile);
      const int end_tile = simt::min((first_page + cut.slice_pages) * kPageTiles, (cut.end_slot + kTile - 1) / kTile);
      // The warp's number is shuffled, so that compilers know that it is uniform over the warp.
      auto& pages = shared.pages[simt::warp()];
      // All loads from memory are issued before any result is used.
      const simt::Words4 rows =
          state.find_pages(first_tile + simt::shuffle(simt::warp(), 0), end_tile, item.head.pages);
      QueryPart<V::kKeyChunks, V::kBf16Keys> queries;
      queries.load(plan, item);
      OwnRowPart own_row;
      own_row.load(plan, item, cut);
      state.write_pages(rows, pages);
      queries.write(shared.items.scale, shared.q[0]);
      if constexpr (V::kHasCodes) {
        queries.rotate(rotated_block(plan.layer.key_dim));
        queries.write(shared.items.scale, shared.q[1]);
      }
      own_row.store(plan.layer);
      simt::barrier();

      state.attend(shared.q, plan.layer.soft_cap, shared.items.item, pages);
      state.write(shared);
      simt::barrier();
    }
    if (simt::thread_anew() == 0) shared.items.next += simt::grid_x();
    merge_warps(plan, shared);
    if (shared.items.item.n_slices > 1 && is_last_slice(plan, shared)) merge_slices(plan, shared);
    simt::barrier();
  }
}

template <class V>
void queue_variant(simt::Queue& queue, const StepAttention& plan) {
  const auto kernel = attend<V>;
  constexpr std::size_t shared_bytes = sizeof(Shared<V>);
  const int n_group = plan.layer.n_head / plan.layer.n_kv_head;
  const int n_most = plan.n_sequences * plan.layer.n_kv_head * ((n_group + kHeads - 1) / kHeads) * kMaxStepSlices;
  const int n_resident = simt::resident_blocks(queue, kThreads, shared_bytes, kernel);
  const auto n_blocks = static_cast<unsigned>(n_most < n_resident ? n_most : n_resident);
  simt::launch(queue, {n_blocks}, kThreads, shared_bytes, kernel, plan);
}

// Queues the kernel for these sizes and the types of the plan.
template <int kKeyChunks, int kValueChunks, bool kIsPadded>
void queue_of_size(simt::Queue& queue, const StepAttention& plan) {
  const bool has_bf16_keys = plan.layer.key_type == EntryType::kBF16;
  const bool has_bf16_values = plan.layer.value_type == EntryType::kBF16;
  const auto queue_types =
      has_bf16_keys
          ? (has_bf16_values ? queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, true, true, false>>
                             : queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, true, false, false>>)
          : (has_bf16_values ? queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, true, false>>
                             : queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, false, false>>);
  queue_types(queue, plan);
}

template <int kKeyChunks, int kValueChunks, bool kIsPadded>
void queue_codes(simt::Queue& queue, const StepAttention& plan) {
  queue_variant<Variant<kKeyChunks, kValueChunks, kIsPadded, false, false, true>>(queue, plan);
}

}  // namespace step

inline void queue_step_attention(simt::Queue& queue, const StepAttention& plan) {
  const int key_dim = plan.layer.key_dim;
  const int value_dim = plan.layer.value_dim;
  if (plan.has_codes) {
    if (key_dim == 64 && value_dim == 64) return step::queue_codes<2, 1, false>(queue, plan);
    if (key_dim == 128 && value_dim == 128) return step::queue_codes<4, 2, false>(queue, plan);
    if (key_dim <= 128 && value_dim <= 128) return step::queue_codes<4, 2, true>(queue, plan);
    return step::queue_codes<8, 4, true>(queue, plan);
  }
  if (key_dim == 64 && value_dim == 64) return step::queue_of_size<2, 1, false>(queue, plan);
  if (key_dim == 128 && value_dim == 128) return step::queue_of_size<4, 2, false>(queue, plan);
  if (key_dim == 256 && value_dim == 256) return step::queue_of_size<8, 4, false>(queue, plan);
  if (key_dim <= 96 && value_dim <= 128) return step::queue_of_size<3, 2, true>(queue, plan);
  step::queue_of_size<8, 4, true>(queue, plan);
}

}  // namespace winnow::device
