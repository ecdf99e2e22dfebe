// Graphs and loops on the thread team: nodes of winnow's own between ggml's, and what is thrown in them.
#include "model/compute.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace winnow {
namespace {

float* numbers_of(ggml_tensor* tensor) { return static_cast<float*>(tensor->data); }

// A graph of y = 2 (own(2 x) + 1) for eight numbers, where own() is `work`, which gets its node and input.
class OwnBetweenTwo {
 public:
  OwnBetweenTwo(std::vector<float>& x, const std::function<void(float* to, const float* from)>& work) : graph_(16) {
    ggml_tensor* const in =
        ggml_scale(graph_.context(), graph_.external(GGML_TYPE_F32, 8, 1, x.data()), 2.0F);  // ggml's
    ggml_tensor* const own = graph_.own(GGML_TYPE_F32, 8, 1, {&in, 1},
                                        [in, work](ggml_tensor* node) { work(numbers_of(node), numbers_of(in)); });
    y_ = ggml_scale_bias(graph_.context(), own, 2.0F, 2.0F);
    graph_.expand(y_);
    graph_.allocate();
  }

  std::vector<float> run(Compute& compute) {
    compute.run(graph_);
    return {numbers_of(y_), numbers_of(y_) + 8};
  }

 private:
  Graph graph_;
  ggml_tensor* y_ = nullptr;
};

TEST(ComputeTest, OwnNodesHaveTheirTurnBetweenThoseOfGgml) {
  Compute compute(2);
  std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7};
  OwnBetweenTwo graph(x, [&](float* to, const float* from) {
    compute.parallel_for(8, [&](int i) { to[i] = from[i] * from[i]; });  // loops run on the same threads
  });
  EXPECT_EQ(graph.run(compute), (std::vector<float>{2, 10, 34, 74, 130, 202, 290, 394}));  // 2 (4 x^2 + 1)
  x[7] = 0;
  EXPECT_EQ(graph.run(compute), (std::vector<float>{2, 10, 34, 74, 130, 202, 290, 2}));
}

TEST(ComputeTest, WhatAnOwnNodeThrowsEndsTheRunAndNotTheTeam) {
  Compute compute(2);
  std::vector<float> x(8, 1.0F);
  bool throws = true;
  OwnBetweenTwo graph(x, [&](float* to, const float* /*from*/) {
    compute.parallel_for(8, [&](int i) {
      if (throws && i == 3) throw std::runtime_error("the fourth");
      to[i] = 1.0F;
    });
  });
  EXPECT_THROW(graph.run(compute), std::runtime_error);
  throws = false;
  EXPECT_EQ(graph.run(compute), std::vector<float>(8, 4.0F));
}

TEST(ComputeTest, LoopsHandOutEveryItemOnce) {
  Compute compute(3);
  for (const int n : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> counts(static_cast<std::size_t>(n));
    compute.parallel_for(n, [&](int i) { ++counts[static_cast<std::size_t>(i)]; });
    for (const std::atomic<int>& count : counts) EXPECT_EQ(count, 1) << "of " << n;
  }
  EXPECT_THROW(compute.parallel_for(1, [](int) { throw std::runtime_error("the only one"); }), std::runtime_error);
}

}  // namespace
}  // namespace winnow
