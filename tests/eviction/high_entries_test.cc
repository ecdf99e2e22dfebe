// The choice of entries in more bits, and entries of several types that a scorer reads.
#include "eviction/cut/high_entries.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "eviction/random_cache.h"
#include "kernels/entries/rows.h"
#include "winnow/layer_evidence.h"

namespace winnow {
namespace {

constexpr HighPrecision kThird{.fraction = 0.3, .unit = 32, .n_plain = 4};

TEST(HighEntries, AreWholePagesThatSumToTheirPart) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> weights;
    std::vector<std::int64_t> kept;
    std::int64_t room = 0;
    for (int h = 0; h < 12; ++h) {
      kept.push_back(static_cast<std::int64_t>(random() % 400));
      weights.push_back(static_cast<double>(random() % static_cast<unsigned>(kept.back() + 1)));
      room += std::max<std::int64_t>(kept.back() - 4, 0) / 32 * 32;
    }
    const auto total = static_cast<double>(std::accumulate(kept.begin(), kept.end(), std::int64_t{0}));
    const std::vector<std::int64_t> counts = high_counts(kThird, total, weights, kept, false);
    const std::vector<std::int64_t> most = high_counts(kThird, total, weights, kept, true);
    const auto wanted = static_cast<std::int64_t>(0.3 * total) / 32 * 32;
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), std::min(wanted, room));
    for (std::size_t h = 0; h < kept.size(); ++h) {
      EXPECT_EQ(counts[h] % 32, 0);
      EXPECT_LE(counts[h], std::max<std::int64_t>(kept[h] - 4, 0));
      EXPECT_LE(counts[h], most[h]);
    }
  }
}

TEST(HighEntries, AreTheWindowAndThenTheBest) {
  // The head has 6 sinks, the candidates 1, 3, 4 and 7 that are stored, and a window of 3.
  const std::vector<std::int32_t> kept = {0, 1, 2, 3, 4, 5, 7, 9, 10, 13, 20, 21, 22};
  const std::vector<std::int32_t> chosen = {1, 3, 4, 7}, order = {4, 0, 7, 1, 2, 3, 5, 6};
  const KeptHead head{.kept = kept, .chosen = chosen, .order = order, .n_sinks = 6, .n_window = 3};
  using List = std::vector<std::int32_t>;
  EXPECT_EQ(high_entries(kThird, head, 0), List({}));
  EXPECT_EQ(high_entries(kThird, head, 2), List({21, 22}));
  EXPECT_EQ(high_entries(kThird, head, 5), List({10, 13, 20, 21, 22}));
  EXPECT_EQ(high_entries(kThird, head, 9), List({4, 5, 7, 9, 10, 13, 20, 21, 22})) << "the sinks come last";
}

// A scorer reads a head whose runs have different types.
TEST(LayerEvidence, ReadsEveryRunInItsType) {
  testing::RandomCache cache(1, 2, 2, 16, 45, 3);
  EvictionOptions options = EvictionOptions::parse("knorm:window=0");
  cache.with_view(0, {}, [&](const LayerView& view) {
    const int d = view.shape.key_dim;
    std::vector<float> expected(45 * static_cast<std::size_t>(d)), found(expected.size());
    LayerEvidence(view, options, 0, testing::serial()).read_keys(1, 0, 45, expected.data());
    // The rows are the same, with every other run in f16.
    std::vector<std::vector<std::byte>> halves;
    std::vector<kernels::EntryRun> runs(view.heads[1].runs.begin(), view.heads[1].runs.end());
    for (std::size_t r = 0; r < runs.size(); r += 2) {
      const std::size_t row = row_bytes(EntryType::kF16, d);
      std::vector<std::byte>& half = halves.emplace_back(static_cast<std::size_t>(runs[r].n_entries) * row);
      for (std::int32_t i = 0; i < runs[r].n_entries; ++i) {
        kernels::convert_row(EntryType::kF32, EntryType::kF16,
                             runs[r].keys + static_cast<std::size_t>(i) * row_bytes(EntryType::kF32, d),
                             half.data() + static_cast<std::size_t>(i) * row, d);
      }
      runs[r].keys = half.data();
      runs[r].key_type = EntryType::kF16;
    }
    std::vector<kernels::HeadEntries> heads(view.heads.begin(), view.heads.end());
    heads[1].runs = runs;
    LayerView mixed = view;
    mixed.heads = heads;
    LayerEvidence(mixed, options, 0, testing::serial()).read_keys(1, 0, 45, found.data());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3F * 4) << i;
  });
}

}  // namespace
}  // namespace winnow
