#include "eviction/losses.h"

#include <gtest/gtest.h>

#include "eviction/random_cache.h"

namespace winnow {
namespace {

using testing::RandomCache;
using testing::serial;

TEST(Losses, EveryBoundHoldsAndNothingEvictedCostsNothing) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    RandomCache whole(2, 2, 2, 8, 40, seed, 3);
    RandomCache cut = whole;
    const EvictionOptions options = EvictionOptions::parse("snapkv:window=5");
    cut.cut(options, (8 + 3 * std::int64_t{seed}) * whole.n_heads(), false);
    for (int l = 0; l < 2; ++l) {
      whole.with_view(l, {.window_rows = 1}, [&](const LayerView& view) {
        std::vector<std::vector<std::int32_t>> certain = cut.stored[l];
        for (auto& head : certain) head.erase(head.begin(), head.begin() + 2);
        const LayerLosses losses = measure_losses(view, cut.stored[l], certain, serial());
        EXPECT_GT(losses.loss_layer, 0);
        EXPECT_LE(losses.loss_layer, losses.ada_eps);
        EXPECT_LE(losses.loss_layer, losses.lava_bound);
        for (int h = 0; h < 4; ++h) {
          EXPECT_GT(losses.loss_head[h], 0);
          EXPECT_LE(losses.loss_head[h], losses.theta[h] * (1 + 1e-6));
          EXPECT_LE(losses.theta[h], losses.theta_hat[h]);
        }
        const LayerLosses none = measure_losses(view, whole.stored[l], {}, serial());
        EXPECT_EQ(none.loss_layer, 0);
        EXPECT_EQ(none.ada_eps, 0);
        EXPECT_EQ(none.theta[0], 0);
        EXPECT_TRUE(none.theta_hat.empty());
      });
    }
  }
}

}  // namespace
}  // namespace winnow
