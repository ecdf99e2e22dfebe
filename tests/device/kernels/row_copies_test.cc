// Kernels that store rows in pages and copy bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "cache/entry_memory.h"
#include "device/kernel_plans.h"
#include "device/kernels/device_pages.h"
#include "device/kernels/host_kernels.h"
#include "normal_numbers.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;
using test::normal_numbers;

constexpr ThreadOrder kOrders[] = {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kRandom};

void expect_rows_stored(EntryType key_type, EntryType value_type, int key_dim, int value_dim, ThreadOrder order) {
  constexpr int kRows = 75;
  const LayerAttention layer = {.n_head = 6,
                                .n_kv_head = 3,
                                .key_dim = key_dim,
                                .value_dim = value_dim,
                                .key_type = key_type,
                                .value_type = value_type};
  std::vector<float> k = normal_numbers(static_cast<std::size_t>(kRows * 3 * key_dim), 1);
  const std::vector<float> v = normal_numbers(static_cast<std::size_t>(kRows * 3 * value_dim), 2, 0, 3e4F);
  k[5] = 1e9F;
  k[6] = -1e9F;
  k[7] = 1e-9F;
  std::vector<std::unique_ptr<TestPages>> pages, expected;
  std::vector<HeadTable> tables;
  for (int h = 0; h < 3; ++h) {
    const int first_slot = 11 * h;
    const int n_entries = kRows + 20 * h;
    const auto seed = static_cast<unsigned>(h);
    pages.push_back(std::make_unique<TestPages>(layer, first_slot, n_entries, seed));
    expected.push_back(std::make_unique<TestPages>(layer, first_slot, n_entries, seed));
    for (int r = 0; r < kRows; ++r) {
      pages.back()->clear(n_entries - kRows + r);
      expected.back()->set(n_entries - kRows + r, k.data() + (r * 3 + h) * key_dim, v.data() + (r * 3 + h) * value_dim);
    }
    tables.push_back(pages.back()->table());
  }
  simt::Queue queue(order);
  fibers::run(queue, StoreRows{.layer = layer, .k = k.data(), .v = v.data(), .heads = tables.data(), .n_rows = kRows});
  for (std::size_t h = 0; h < 3; ++h) EXPECT_TRUE(*pages[h] == *expected[h]) << h;
}

TEST(StoreRowsKernel, StoresTheBytesThatTheProcessorStores) {
  for (const ThreadOrder order : kOrders) {
    expect_rows_stored(EntryType::kF16, EntryType::kF16, 64, 64, order);
    expect_rows_stored(EntryType::kBF16, EntryType::kF16, 80, 16, order);
    expect_rows_stored(EntryType::kF16, EntryType::kBF16, 32, 128, order);
  }
}

TEST(CopiesKernel, CopiesBytesWhereverTheyLie) {
  const std::vector<float> numbers = normal_numbers(100000, 3);
  const auto* from = reinterpret_cast<const std::byte*>(numbers.data());
  struct Place {
    std::size_t to, from, bytes;
  };
  const Place places[] = {{0, 32, 16},        {64, 8192, 256},    {1024, 100, 36},       {2000, 1001, 77},
                          {4096, 64, 40000},  {50000, 16, 1},     {60000, 60000, 12345}, {80004, 4, 4096},
                          {100000, 7, 10000}, {120000, 16, 80016}};
  for (const ThreadOrder order : kOrders) {
    std::vector<std::byte> to(400000, std::byte{0xAB});
    std::vector<std::byte> expected = to;
    std::vector<ByteCopy> list;
    const auto misplaced = reinterpret_cast<std::uintptr_t>(to.data()) % 16;
    ASSERT_EQ(misplaced, 0U);
    for (const Place& place : places) {
      list.push_back({to.data() + place.to, from + place.from, place.bytes});
      std::memcpy(expected.data() + place.to, from + place.from, place.bytes);
    }
    simt::Queue queue(order);
    fibers::run(queue, Copies{.list = list.data(), .n = static_cast<int>(list.size())});
    EXPECT_TRUE(to == expected);
    fibers::run(queue, Copies{.list = nullptr, .n = 0});
  }
}

}  // namespace
}  // namespace winnow::device
