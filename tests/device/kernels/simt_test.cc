#include "device/kernels/simt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace winnow::simt {
namespace {

constexpr ThreadOrder kOrders[] = {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kRandom};

struct Sums {
  int* out;  // [grid][n_threads]
  bool has_barrier;
};

// Each thread writes a number to shared memory and reads the sum of its neighbours'.
WINNOW_KERNEL void add_neighbours(Sums sums) {
  auto* numbers = reinterpret_cast<int*>(shared());
  const int n = n_threads();
  numbers[thread()] = thread() * thread() + block_x();
  if (sums.has_barrier) barrier();
  const int before = numbers[(thread() + n - 1) % n];
  const int after = numbers[(thread() + 1) % n];
  sums.out[block_x() * n + thread()] = before + after;
}

std::vector<int> neighbours(ThreadOrder order, bool has_barrier) {
  Queue queue(order);
  std::vector<int> out(3 * 96);
  launch(queue, {3}, 96, 96 * sizeof(int), add_neighbours, Sums{out.data(), has_barrier});
  return out;
}

TEST(Simt, BarrierLetsThreadsSeeEachOther) {
  for (const ThreadOrder order : kOrders) {
    const std::vector<int> out = neighbours(order, true);
    for (int b = 0; b < 3; ++b) {
      for (int i = 0; i < 96; ++i) {
        const int before = (i + 95) % 96;
        const int after = (i + 1) % 96;
        ASSERT_EQ(out[static_cast<std::size_t>(b * 96 + i)], before * before + after * after + 2 * b);
      }
    }
  }
}

TEST(Simt, MissingBarrierIsSeen) {
  const std::vector<int> right = neighbours(ThreadOrder::kAscending, true);
  for (const ThreadOrder order : kOrders) EXPECT_NE(neighbours(order, false), right);
}

struct Shuffles {
  int* ints;
  double* doubles;
  int* coordinates;
};

WINNOW_KERNEL void exchange(Shuffles s) {
  const int i = block_y() * n_threads() + thread();
  s.ints[i] = shuffle(100 * warp() + lane(), (lane() + 5) % 32);
  int sum = lane();
  for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
  warp_barrier();
  s.doubles[i] = shuffle_xor(0.5 + thread(), 16) + 1000.0 * sum;
  s.coordinates[i] = block_x() + 10 * block_y() + 100 * block_z() + 1000 * grid_y();
}

TEST(Simt, ShufflesExchangeNumbersOf32And64Bits) {
  for (const ThreadOrder order : kOrders) {
    Queue queue(order);
    std::vector<int> ints(128), coordinates(128);
    std::vector<double> doubles(128);
    launch(queue, {1, 2, 1}, 64, 0, exchange, Shuffles{ints.data(), doubles.data(), coordinates.data()});
    for (int i = 0; i < 128; ++i) {
      const int t = i % 64;
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(ints[at], 100 * (t / 32) + (t % 32 + 5) % 32);
      EXPECT_EQ(doubles[at], 0.5 + (t ^ 16) + 1000.0 * 496);
      EXPECT_EQ(coordinates[at], 10 * (i / 64) + 2000);
    }
  }
}

struct Pair {
  float sum;
  int most;
};

struct MergePairs {
  WINNOW_DEVICE Pair operator()(const Pair& a, const Pair& b) const { return {a.sum + b.sum, max(a.most, b.most)}; }
};

struct Combinations {
  float* sums;     // [32] over all lanes
  double* halves;  // [32] over lanes that differ in the highest two bits
  Pair* pairs;     // [32] over groups of four lanes
  bool by_shuffles;
};

// Numbers whose sum depends on the order of additions.
WINNOW_DEVICE float uneven(int i) { return 1.0F / static_cast<float>(3 + 7 * (i * 11 % 32)); }

WINNOW_KERNEL void combine(Combinations c) {
  const int i = lane();
  float sum = uneven(i);
  double half = static_cast<double>(uneven(31 - i)) / 3;
  Pair pair = {uneven(i), i * 13 % 32};
  if (c.by_shuffles) {
    for (int mask = 1; mask < 32; mask *= 2) sum += shuffle_xor(sum, mask);
    for (int mask = 8; mask < 32; mask *= 2) half += shuffle_xor(half, mask);
    for (int mask = 1; mask < 4; mask *= 2) {
      pair = MergePairs{}(pair, Pair{shuffle_xor(pair.sum, mask), shuffle_xor(pair.most, mask)});
    }
  } else {
    sum = sum_lanes<1, 32>(sum);
    half = sum_lanes<8, 32>(half);
    pair = combine_lanes<1, 4>(pair, MergePairs{});
  }
  c.sums[i] = sum;
  c.halves[i] = half;
  c.pairs[i] = pair;
}

TEST(Simt, CombinesLanesAsShufflesDo) {
  for (const ThreadOrder order : kOrders) {
    Queue queue(order);
    std::vector<float> sums[2];
    std::vector<double> halves[2];
    std::vector<Pair> pairs[2];
    for (const int k : {0, 1}) {
      sums[k].resize(32);
      halves[k].resize(32);
      pairs[k].resize(32);
      launch(queue, {}, 32, 0, combine, Combinations{sums[k].data(), halves[k].data(), pairs[k].data(), k == 1});
    }
    EXPECT_EQ(sums[0], sums[1]);
    EXPECT_EQ(halves[0], halves[1]);
    EXPECT_NE(halves[0][0], halves[0][1]);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(pairs[0][i].sum, pairs[1][i].sum);
      EXPECT_EQ(pairs[0][i].most, pairs[1][i].most);
    }
  }
}

struct Product {
  const float* a;  // [16][16]
  const float* b;  // [16][8]
  float* d;        // [16][8]
  bool is_bf16;
  bool by_matrix_loads;
};

WINNOW_KERNEL void multiply(Product p) {
  const auto pack = [&](float low, float high) { return p.is_bf16 ? pack_bf16(low, high) : pack_f16(low, high); };
  const int r = lane() / 4;
  const int c = 2 * (lane() % 4);
  std::uint32_t a[4], b[2];
  if (p.by_matrix_loads) {
    auto* words = reinterpret_cast<std::uint32_t*>(shared());  // A [16][16], then B [16][8]
    for (int i = lane(); i < 128; i += 32) words[i] = pack(p.a[2 * i], p.a[2 * i + 1]);
    for (int i = lane(); i < 64; i += 32) words[128 + i] = pack(p.b[2 * i], p.b[2 * i + 1]);
    warp_barrier();
    load_matrix(a, words + (lane() % 16) * 8 + lane() / 16 * 4);
    std::uint32_t both[4];
    load_matrix_transposed(both, words + 128 + (lane() % 16) * 4);
    b[0] = both[0];
    b[1] = both[1];
  } else {
    for (int i = 0; i < 4; ++i) {
      const float* from = p.a + (r + 8 * (i % 2)) * 16 + c + 8 * (i / 2);
      a[i] = pack(from[0], from[1]);
    }
    for (int i = 0; i < 2; ++i) {
      const float* from = p.b + (c + 8 * i) * 8 + r;
      b[i] = pack(from[0], from[8]);
    }
  }
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = p.d[(r + 8 * (i / 2)) * 8 + c + i % 2];
  if (p.is_bf16) {
    mma_bf16(d, a, b);
  } else {
    mma_f16(d, a, b);
  }
  for (int i = 0; i < 4; ++i) p.d[(r + 8 * (i / 2)) * 8 + c + i % 2] = d[i];
}

TEST(Simt, ProductsAreRightInEveryPosition) {
  for (const ThreadOrder order : kOrders) {
    for (const bool is_bf16 : {false, true}) {
      for (const bool by_matrix_loads : {false, true}) {
        Queue queue(order);
        std::mt19937 random(7);
        std::uniform_int_distribution<int> small(-8, 8);  // exact in every format
        std::vector<float> a(256), b(128), d(128);
        for (auto* numbers : {&a, &b, &d}) {
          for (float& x : *numbers) x = static_cast<float>(small(random));
        }
        std::vector<float> expected = d;
        for (std::size_t i = 0; i < 16; ++i) {
          for (std::size_t j = 0; j < 8; ++j) {
            for (std::size_t k = 0; k < 16; ++k) expected[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
          }
        }
        launch(queue, {}, 32, 768, multiply, Product{a.data(), b.data(), d.data(), is_bf16, by_matrix_loads});
        EXPECT_EQ(d, expected);
      }
    }
  }
}

WINNOW_KERNEL void transpose(std::uint32_t* words) { words[thread()] = transpose_matrix(words[thread()]); }

TEST(Simt, TransposesMatrices) {
  Queue queue(ThreadOrder::kRandom);
  std::uint16_t numbers[8][8], expected[8][8];  // lane 4 i + j holds columns 2 j and 2 j + 1 of row i
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) numbers[i][j] = expected[j][i] = static_cast<std::uint16_t>(100 * i + j);
  }
  std::uint32_t words[32];
  std::memcpy(words, numbers, sizeof words);
  launch(queue, {}, 32, 0, transpose, static_cast<std::uint32_t*>(words));
  EXPECT_EQ(std::memcmp(words, expected, sizeof words), 0);
}

struct Copy {
  const float* from;  // [3][128 * 4]
  float* before;      // [128 * 4] after the wait for the first of two groups
  float* after;       // [3][128 * 4]
};

WINNOW_KERNEL void copy_to_shared(Copy copy) {
  auto* to = reinterpret_cast<float*>(shared());
  const int i = 4 * thread();
  copy_async_16(to + i, copy.from + i);
  commit_copies();
  copy_async_16(to + 512 + i, copy.from + 512 + i);
  copy_async_16_or_zero(to + 1024 + i, nullptr, false);
  commit_copies();
  wait_copies<1>();
  for (int j = 0; j < 4; ++j) copy.after[i + j] = to[i + j];
  for (int j = 0; j < 4; ++j) copy.before[i + j] = to[512 + i + j];
  wait_copies<0>();
  barrier();
  const int other = 508 - i;  // another thread's numbers
  for (int j = 0; j < 4; ++j) copy.after[512 + other + j] = to[512 + other + j];
  for (int j = 0; j < 4; ++j) copy.after[1024 + other + j] = to[1024 + other + j];
}

TEST(Simt, CopiesAreThereAfterTheirWait) {
  for (const ThreadOrder order : kOrders) {
    Queue queue(order);
    alignas(16) float from[1024];
    for (int i = 0; i < 1024; ++i) from[i] = static_cast<float>(i);
    std::vector<float> before(512), after(1536, -1.0F);
    launch(queue, {}, 128, 1536 * sizeof(float), copy_to_shared, Copy{from, before.data(), after.data()});
    for (std::size_t i = 0; i < 512; ++i) EXPECT_TRUE(std::isnan(before[i]));
    for (std::size_t i = 0; i < 1536; ++i) EXPECT_EQ(after[i], i < 1024 ? static_cast<float>(i) : 0.0F);
  }
}

TEST(Simt, RoundsToHalfPrecision) {
  EXPECT_EQ(pack_f16(1.0F, -2.0F), 0xC0003C00U);
  EXPECT_EQ(pack_f16(65519.0F, 65520.0F), 0x7C007BFFU);
  EXPECT_EQ(pack_f16(0x1p-24F, 0x1p-25F), 0x00000001U);
  EXPECT_EQ(pack_f16(1.0F + 0x1p-11F, 1.0F + 0x1.8p-10F), 0x3C023C00U);
  EXPECT_EQ(pack_bf16(1.0F + 0x1p-8F, 1.0F + 0x1.8p-7F), 0x3F823F80U);
  EXPECT_EQ(low_f16(0xC0003C01U), 1.0F + 0x1p-10F);
  EXPECT_EQ(high_f16(0x80013C00U), -0x1p-24F);
  EXPECT_EQ(permute_bytes(0x33221100U, 0x77665544U, 0x5410U), 0x55441100U);
  EXPECT_EQ(permute_bytes(0x33221100U, 0x77665544U, 0x7632U), 0x77663322U);
}

#ifdef GTEST_HAS_DEATH_TEST
WINNOW_KERNEL void lose_a_lane(int lost) {
  if (thread() != lost) barrier();
}

WINNOW_KERNEL void combine_apart(int* sums) {
  sums[lane()] = lane() < 31 ? sum_lanes<1, 32>(lane()) : max_lanes<1, 32>(lane());
}

TEST(SimtDeathTest, SaysThatLanesCombineApart) {
  Queue queue(ThreadOrder::kAscending);
  std::vector<int> sums(32);
  EXPECT_DEATH(launch(queue, {}, 32, 0, combine_apart, sums.data()), "combines otherwise than the other lanes");
}

TEST(SimtDeathTest, SaysThatAThreadIsMissing) {
  Queue queue(ThreadOrder::kAscending);
  EXPECT_DEATH(launch(queue, {}, 32, 0, lose_a_lane, 3), "waits at a barrier to which others never come");
}
#endif

}  // namespace
}  // namespace winnow::simt
