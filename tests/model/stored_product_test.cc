// Products of the file's own weights and ggml's products, both compared with double precision on the same weights.
#include "model/stored_product.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "kernels/products/quantised_product.h"
#include "kernels/simd/isa.h"
#include "model/compute.h"
#include "model/weights.h"
#include "normal_numbers.h"

namespace winnow {
namespace {

constexpr std::int64_t kIn = 512, kOut = 70;

ggml_tensor* random_matrix(ggml_context* context, ggml_type type, std::uint32_t seed) {
  ggml_tensor* tensor = ggml_new_tensor_2d(context, type, kIn, kOut);
  ggml_quantize_chunk(type, test::normal_numbers(kIn * kOut, seed).data(), tensor->data, 0, kOut, kIn, nullptr);
  return tensor;
}

ggml_type type_named(std::string_view name) {
  for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
    const char* known = ggml_type_name(static_cast<ggml_type>(type));
    if (known != nullptr && name == known) return static_cast<ggml_type>(type);
  }
  ADD_FAILURE() << "ggml has no type " << name;
  return GGML_TYPE_COUNT;
}

using Product = std::function<ggml_tensor*(ggml_context*, ggml_tensor*)>;  // of x

std::vector<float> computed(Compute& compute, std::vector<float> x, const Product& product) {
  Graph graph(16);
  ggml_tensor* input = graph.external(GGML_TYPE_F32, kIn, static_cast<std::int64_t>(x.size()) / kIn, x.data());
  ggml_tensor* y = product(graph.context(), input);
  ggml_set_output(y);
  graph.expand(y);
  graph.allocate();
  compute.run(graph);
  const auto* data = static_cast<const float*>(y->data);
  return {data, data + ggml_nelements(y)};
}

std::vector<float> stored(Compute& compute, const std::vector<float>& x, ggml_tensor* weight) {
  return computed(compute, x, [&](ggml_context* context, ggml_tensor* input) {
    QuantisedRows rows;
    return stored_product(context, weight, input, compute, rows);
  });
}

// Returns the mean square of y - W x.
double error_of(const std::vector<float>& y, const ggml_tensor* weight, const std::vector<float>& x) {
  double sum = 0;
  std::vector<float> w(kIn);
  for (std::int64_t o = 0; o < kOut; ++o) {
    dequantize_row(weight, o, w.data());
    for (std::size_t r = 0; r < x.size() / kIn; ++r) {
      double exact = 0;
      for (std::size_t i = 0; i < kIn; ++i) exact += double{w[i]} * double{x[r * kIn + i]};
      const double difference = double{y[r * kOut + static_cast<std::size_t>(o)]} - exact;
      sum += difference * difference;
    }
  }
  return sum / static_cast<double>(y.size());
}

TEST(StoredProductTest, IsNotFartherFromTheExactOneThanGgmls) {
  const ggml_context_ptr context(
      ggml_init({.mem_size = std::size_t{8} << 20, .mem_buffer = nullptr, .no_alloc = false}));
  Compute compute(2);
  const std::vector<float> x = test::normal_numbers(40 * kIn, 99);
  for (const kernels::WeightBlocksInfo& info : kernels::kWeightBlocks) {
    ggml_tensor* weight = random_matrix(context.get(), type_named(info.name), 1);
    ASSERT_EQ(ggml_blck_size(weight->type), info.n_weights) << info.name;
    ASSERT_EQ(ggml_type_size(weight->type), info.n_bytes) << info.name;
    EXPECT_EQ(has_int8_product(weight), kernels::has_quantised_products());
    const double ours = error_of(stored(compute, x, weight), weight, x);
    const double ggmls = error_of(computed(compute, x,
                                           [&](ggml_context* graph_context, ggml_tensor* input) {
                                             return ggml_mul_mat(graph_context, weight, input);
                                           }),
                                  weight, x);
    EXPECT_LE(ours, 1.02 * ggmls) << info.name;
    std::printf("%-8s root mean square error %.4g, ggml's %.4g\n", info.name.data(), std::sqrt(ours), std::sqrt(ggmls));
  }
}

// Rows are quantised by every thread, or once for all threads.
TEST(StoredProductTest, IsTheSameBitsForAnyNumberOfRowsAndThreads) {
  if (!kernels::has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  const ggml_context_ptr context(
      ggml_init({.mem_size = std::size_t{8} << 20, .mem_buffer = nullptr, .no_alloc = false}));
  const std::vector<float> x = test::normal_numbers(20 * kIn, 99);
  for (const ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_Q4_0}) {
    ggml_tensor* weight = random_matrix(context.get(), type, 1);
    Compute one(1);
    const std::vector<float> all = stored(one, x, weight);
    for (const int n_threads : {2, 3, 5}) {
      Compute compute(n_threads);
      for (const std::int64_t n_rows : {1, 2, 3, 4, 20}) {
        const std::vector<float> y = stored(compute, {x.begin(), x.begin() + n_rows * kIn}, weight);
        ASSERT_EQ(y, std::vector<float>(all.begin(), all.begin() + n_rows * kOut)) << n_rows << " " << n_threads;
      }
    }
  }
}

TEST(StoredProductTest, ProductsOfTheSameRowsShareWhatIsQuantised) {
  if (!kernels::has_quantised_products()) GTEST_SKIP() << "not on this instruction set";
  const ggml_context_ptr context(
      ggml_init({.mem_size = std::size_t{8} << 20, .mem_buffer = nullptr, .no_alloc = false}));
  ggml_tensor* weights[] = {random_matrix(context.get(), GGML_TYPE_Q4_K, 1),
                            random_matrix(context.get(), GGML_TYPE_Q6_K, 2)};
  Compute compute(2);
  const std::vector<float> x = test::normal_numbers(9 * kIn, 99);
  const std::vector<float> both = computed(compute, x, [&](ggml_context* graph_context, ggml_tensor* input) {
    QuantisedRows rows;
    ggml_tensor* first = stored_product(graph_context, weights[0], input, compute, rows);
    ggml_tensor* quantised = rows.quantised;
    ggml_tensor* second = stored_product(graph_context, weights[1], input, compute, rows);
    EXPECT_EQ(rows.quantised, quantised);
    // Different rows are quantised anew.
    ggml_tensor* other = ggml_scale(graph_context, input, 2);
    ggml_tensor* third = stored_product(graph_context, weights[0], other, compute, rows);
    EXPECT_NE(rows.quantised, quantised);
    return ggml_add(graph_context, ggml_add(graph_context, first, second), third);
  });
  const std::vector<float> first = stored(compute, x, weights[0]), second = stored(compute, x, weights[1]);
  for (std::size_t i = 0; i < both.size(); ++i) ASSERT_EQ(both[i], (first[i] + second[i]) + 2 * first[i]);
}

}  // namespace
}  // namespace winnow
