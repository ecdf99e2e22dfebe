#include "study/losses.h"

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

// One of two tokens with opposite values and equal attention is evicted. Every bound is then reached, so that a missing
// factor or term in any of them shows.
TEST(Losses, EveryBoundIsReachedInTheWorstCase) {
  constexpr int kHeadDim = 8;
  RandomCache whole(1, 1, 1, kHeadDim, 2, 1);
  std::fill(whole.keys[0].begin(), whole.keys[0].end(), 0.0F);  // equal attention
  std::fill(whole.values[0].begin(), whole.values[0].end(), 0.0F);
  whole.values[0][1] = -3;
  whole.values[0][kHeadDim + 1] = 3;
  std::fill(whole.w_o[0].begin(), whole.w_o[0].end(), 0.0F);
  for (int e = 0; e < whole.n_embd; ++e) {
    whole.w_o[0][e] = 0.25F;  // a smaller row that the values do not use
    whole.w_o[0][whole.n_embd + e] = e % 2 == 0 ? 1.0F : -0.5F;
  }
  const std::vector<std::vector<std::int32_t>> kept = {{1}};
  whole.with_view(0, {.window_rows = 1}, [&](const LayerView& view) {
    const LayerLosses losses = measure_losses(view, kept, kept, serial());
    const double loss = 3 * (6 * 1.0 + 6 * 0.5);  // || (0 - 3) W_O ||_1: the output was 0
    EXPECT_NEAR(losses.loss_head[0], loss, 1e-5);
    EXPECT_NEAR(losses.loss_layer, loss, 1e-5);
    EXPECT_NEAR(losses.mass[0], 0.5, 1e-7);
    EXPECT_NEAR(losses.theta[0], loss, 1e-5);
    EXPECT_NEAR(losses.theta_hat[0], loss, 1e-5);
    EXPECT_NEAR(losses.ada_eps, loss, 1e-5);
    EXPECT_NEAR(losses.lava_bound, loss, 1e-5);
  });
}

}  // namespace
}  // namespace winnow
