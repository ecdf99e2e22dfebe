#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "device/kernels/eight_bit_rows.h"
#include "device/kernels/vector_products-inl.h"
#include "kernels/reference/weights.h"
#include "normal_numbers.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;

struct TypeCase {
  const char* name;  // ggml's name
  WeightType type;
  std::vector<std::size_t> half_offsets;  // byte offsets of the 16-bit scales in a block
};

const TypeCase kTypes[] = {
    {"f32", WeightType::kF32, {}},       {"f16", WeightType::kF16, {}},       {"bf16", WeightType::kBF16, {}},
    {"q4_0", WeightType::kQ4_0, {0}},    {"q4_1", WeightType::kQ4_1, {0, 2}}, {"q8_0", WeightType::kQ8_0, {0}},
    {"q4_K", WeightType::kQ4_K, {0, 2}}, {"q5_K", WeightType::kQ5_K, {0, 2}}, {"q6_K", WeightType::kQ6_K, {208}},
};

const TypeCase& case_of(WeightType type) {
  for (const TypeCase& one : kTypes) {
    if (one.type == type) return one;
  }
  std::abort();
}

// Random weights of a type as bytes, and the numbers that these stand for.
struct TestWeight {
  TestWeight(WeightType weight_type, int n_rows, int n_in, std::mt19937& random)
      : type(weight_type),
        n_out(n_rows),
        bytes((row_bytes(type, n_in) * static_cast<std::size_t>(n_out) + 15) / 16 * 16) {
    const std::size_t n = static_cast<std::size_t>(n_out) * static_cast<std::size_t>(n_in);
    if (is_float_type(type)) {
      const std::vector<float> drawn = test::normal_numbers(n, random);
      for (std::size_t i = 0; i < n; ++i) numbers.push_back(static_cast<double>(store_number(i, drawn[i])));
      return;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
    const std::size_t block = static_cast<std::size_t>(products::layout_of(type).block_bytes);
    for (std::size_t at = 0; at + block <= bytes.size(); at += block) {
      for (const std::size_t offset : case_of(type).half_offsets) {
        const float scale = (static_cast<float>(random() % 2000) - 1000.0F) * 1e-4F;
        const std::uint16_t half = simt::host::f16_from_float(scale);
        std::memcpy(bytes.data() + at + offset, &half, sizeof half);
      }
    }
    numbers = kernels::reference::weights(*kernels::weight_blocks(case_of(type).name), bytes.data(), n);
  }

  static std::size_t row_bytes(WeightType type, int n_in) {
    const products::Layout layout = products::layout_of(type);
    return static_cast<std::size_t>(n_in / layout.block_numbers * layout.block_bytes);
  }

  float store_number(std::size_t i, float x) const {
    if (type == WeightType::kF32) {
      std::memcpy(bytes.data() + 4 * i, &x, sizeof x);
      return x;
    }
    const std::uint16_t bits =
        type == WeightType::kF16 ? simt::host::f16_from_float(x) : simt::host::bf16_from_float(x);
    std::memcpy(bytes.data() + 2 * i, &bits, sizeof bits);
    return type == WeightType::kF16 ? simt::low_f16(bits) : simt::low_bf16(bits);
  }

  WeightType type;
  int n_out;
  AlignedArray<std::byte> bytes;
  std::vector<double> numbers;
};

// Rows of x in 8 bits and in float32, as the two kinds of weights read them.
struct TestRows {
  TestRows(int n_rows, int n_in, std::mt19937& random)
      : eight(n_rows, n_in), floats(random_floats(eight.size(), random)) {
    eight.fill(random);
  }
  std::vector<double> numbers(WeightType type) const {
    std::vector<double> all(eight.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = is_float_type(type) ? static_cast<double>(floats[i]) : eight.number(i);
    }
    return all;
  }

  EightBitArrays eight;
  AlignedArray<float> floats;
};

void expect_products(const VectorProduct& plan, const std::vector<const TestWeight*>& weights, const TestRows& x,
                     const std::vector<std::vector<float>>& added) {
  for (int p = 0; p < plan.n_parts; ++p) {
    const ProductPart& part = plan.parts[p];
    const std::vector<double> numbers = x.numbers(part.type);
    for (int r = 0; r < plan.n_rows; ++r) {
      for (int o = 0; o < part.n_out; ++o) {
        const double* row = numbers.data() + r * plan.n_in;
        const double* weight = weights[static_cast<std::size_t>(p)]->numbers.data() + o * plan.n_in;
        double sum = 0, magnitude = 0;
        for (int i = 0; i < plan.n_in; ++i) {
          const double product = weight[i] * row[i];
          sum += product;
          magnitude += std::abs(product);
        }
        const std::size_t at = static_cast<std::size_t>(r) * part.n_out + o;
        if (part.bias != nullptr) sum += static_cast<double>(part.bias[o]);
        if (part.add != nullptr) sum += static_cast<double>(added[static_cast<std::size_t>(p)][at]);
        ASSERT_NEAR(static_cast<double>(part.y[at]), sum, 1e-6 * (magnitude + std::abs(sum)) + 1e-30)
            << case_of(part.type).name << " n_in " << plan.n_in << " rows " << plan.n_rows << " part " << p << " row "
            << r << " out " << o;
      }
    }
  }
}

VectorProduct plan_of(const std::vector<const TestWeight*>& weights, const TestRows& x, int n_in, int n_rows,
                      std::vector<AlignedArray<float>>& y) {
  VectorProduct plan = {};
  plan.n_in = n_in;
  plan.n_rows = n_rows;
  plan.x = x.eight.rows();
  plan.x_float = x.floats.data();
  for (const TestWeight* weight : weights) {
    y.emplace_back(static_cast<std::size_t>(weight->n_out * n_rows));
    plan.parts[plan.n_parts++] = {.weight = weight->bytes.data(),
                                  .type = weight->type,
                                  .n_out = weight->n_out,
                                  .y = y.back().data(),
                                  .bias = nullptr,
                                  .add = nullptr};
  }
  return plan;
}

TEST(VectorProducts, MatchTheWeightsInDoublePrecision) {
  std::mt19937 random(1);
  for (const TypeCase& one : kTypes) {
    const bool is_large = products::layout_of(one.type).block_numbers == 256;
    const std::vector<int> sizes = is_large ? std::vector<int>{256, 768, 1024, 1280, 4096, 5376}
                                            : std::vector<int>{32, 96, 160, 992, 1024, 1056, 2208, 4096};
    for (const int n_in : sizes) {
      for (const int n_out : {1, 30, 67}) {
        if (n_in > 3000 && n_out > 30) continue;
        const TestWeight weight(one.type, n_out, n_in, random);
        for (const int n_rows : {1, 2, 3, 8}) {
          const TestRows x(n_rows, n_in, random);
          std::vector<AlignedArray<float>> y;
          const VectorProduct plan = plan_of({&weight}, x, n_in, n_rows, y);
          simt::Queue queue(ThreadOrder::kRandom);
          queue_vector_product(queue, plan);
          ASSERT_NO_FATAL_FAILURE(expect_products(plan, {&weight}, x, {}));
        }
      }
    }
  }
}

// A row's result has the same bits alone and among others, and in any order of threads.
TEST(VectorProducts, RowsHaveTheSameBitsInAnyCompany) {
  std::mt19937 random(2);
  constexpr int kIn = 2304, kOut = 31;
  for (const TypeCase& one : kTypes) {
    const TestWeight weight(one.type, kOut, kIn, random);
    const TestRows x(kMaxProductRows, kIn, random);
    std::vector<float> alone;
    for (int r = 0; r < kMaxProductRows; ++r) {
      std::vector<AlignedArray<float>> y;
      VectorProduct plan = plan_of({&weight}, x, kIn, 1, y);
      plan.x = x.eight.rows_from(r);
      plan.x_float += r * kIn;
      simt::Queue queue(ThreadOrder::kAscending);
      queue_vector_product(queue, plan);
      alone.insert(alone.end(), y[0].data(), y[0].data() + kOut);
    }
    for (int n_rows = 1; n_rows <= kMaxProductRows; ++n_rows) {
      for (const ThreadOrder order : {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kRandom}) {
        std::vector<AlignedArray<float>> y;
        simt::Queue queue(order);
        queue_vector_product(queue, plan_of({&weight}, x, kIn, n_rows, y));
        ASSERT_EQ(std::memcmp(y[0].data(), alone.data(), y[0].size() * sizeof(float)), 0)
            << one.name << " rows " << n_rows;
      }
    }
  }
}

TEST(VectorProducts, TakeSeveralWeightsWithBiasAndResidual) {
  std::mt19937 random(3);
  const std::vector<std::vector<WeightType>> mixes = {
      {WeightType::kQ4_K, WeightType::kQ4_K},
      {WeightType::kQ4_K, WeightType::kQ4_K, WeightType::kQ6_K},
      {WeightType::kQ6_K, WeightType::kQ4_K, WeightType::kQ4_K},
      {WeightType::kQ5_K, WeightType::kQ6_K, WeightType::kQ5_K},
      {WeightType::kQ8_0, WeightType::kQ8_0, WeightType::kQ8_0},
      {WeightType::kQ4_K, WeightType::kQ8_0, WeightType::kF16},
      {WeightType::kBF16, WeightType::kBF16},
      {WeightType::kQ4_0, WeightType::kQ4_1},
  };
  for (const std::vector<WeightType>& types : mixes) {
    for (const int n_in : {512, 2816}) {
      for (const int n_rows : {1, 2, 4, 7}) {
        std::vector<TestWeight> weights;
        std::vector<const TestWeight*> pointers;
        const int sizes[] = {37, 8, 61};
        for (std::size_t p = 0; p < types.size(); ++p) weights.emplace_back(types[p], sizes[p], n_in, random);
        for (const TestWeight& weight : weights) pointers.push_back(&weight);
        const TestRows x(n_rows, n_in, random);
        std::vector<AlignedArray<float>> y;
        VectorProduct plan = plan_of(pointers, x, n_in, n_rows, y);
        const AlignedArray<float> bias = random_floats(61, random);
        std::vector<std::vector<float>> added(3);
        plan.parts[0].bias = bias.data();
        for (std::size_t p = 1; p < types.size(); ++p) {  // adds the residual in y itself
          for (std::size_t i = 0; i < y[p].size(); ++i) {
            y[p][i] = static_cast<float>(random() % 1000) * 0.01F;
            added[p].push_back(y[p][i]);
          }
          plan.parts[p].add = y[p].data();
          if (p == 2) plan.parts[p].bias = bias.data();
        }
        simt::Queue queue(ThreadOrder::kRandom);
        queue_vector_product(queue, plan);
        ASSERT_NO_FATAL_FAILURE(expect_products(plan, pointers, x, added));
      }
    }
  }
}

TEST(VectorProducts, KnowTheTypesByGgmlsNumbers) {
  for (const TypeCase& one : kTypes) EXPECT_TRUE(is_weight_type(static_cast<int>(one.type)));
  for (const int other : {6, 7, 9, 10, 11, 15, 20, 23, 29, 39, -1}) EXPECT_FALSE(is_weight_type(other));
}

}  // namespace
}  // namespace winnow::device
