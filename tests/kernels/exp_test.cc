// The vectorised power of two has no function in the dispatched interface, so it is compiled here for every instruction
// set.
#include "kernels/simd/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/exp_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// n must be a multiple of 16.
void exp2_row(const float* x, int n, float* out) {
  const hn::ScalableTag<float> d;
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d))) {
    hn::StoreU(exp2_of_negative(d, hn::LoadU(d, x + i)), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/test_head.h"

namespace winnow::kernels {

HWY_EXPORT(exp2_row);

namespace {

class Exp : public EveryIsa {
 protected:
  static std::vector<float> exp2(const std::vector<float>& x) {
    std::vector<float> out(x.size());
    HWY_DYNAMIC_DISPATCH(exp2_row)(x.data(), static_cast<int>(x.size()), out.data());
    return out;
  }
};

TEST_P(Exp, RelativeErrorIsBelowAQuarterOfAMillionth) {
  std::vector<float> x;
  for (int i = 0; i < 125 * 1024; ++i)
    x.push_back(-static_cast<float>(i) / 1024.0F + 1e-4F * static_cast<float>(i % 7));
  for (float& v : x) v = std::min(v, 0.0F);
  const std::vector<float> y = exp2(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp2(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - expected) / expected);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_GT(worst, 0.0);
}

TEST_P(Exp, EndsOfTheRange) {
  const std::vector<float> y =
      exp2({0.0F, -1.0F, -125.0F, -127.0F, -128.0F, -1e30F, -HUGE_VALF, HUGE_VALF, 1.0F, -0.0F, -0.5F, 0, 0, 0, 0, 0});
  EXPECT_EQ(y[0], 1.0F);
  EXPECT_EQ(y[1], 0.5F);
  EXPECT_EQ(y[2], 0x1p-125F);
  for (const std::size_t i : {3, 4, 5, 6}) EXPECT_EQ(y[i], 0.0F) << i;
  const std::vector<float> small = exp2(std::vector<float>(16, -126.3F));
  EXPECT_NEAR(small[0], 0.0F, 0x1p-126F);
  EXPECT_EQ(y[7], 1.0F);
  EXPECT_EQ(y[8], 1.0F);
  EXPECT_EQ(y[9], 1.0F);
  EXPECT_NEAR(y[10], std::sqrt(0.5F), 1e-7F);
}

INSTANTIATE_TEST_SUITE_P(Isa, Exp, testing::ValuesIn(vector_isas()), isa_test_name);

}  // namespace
}  // namespace winnow::kernels
#endif
