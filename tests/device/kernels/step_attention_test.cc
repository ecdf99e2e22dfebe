#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/kernel_plans.h"
#include "device/kernels/device_pages.h"
#include "device/kernels/host_kernels.h"
#include "kernels/reference/reference.h"
#include "normal_numbers.h"

namespace winnow::device {
namespace {

using simt::ThreadOrder;
using test::normal_numbers;

constexpr ThreadOrder kOrders[] = {ThreadOrder::kAscending, ThreadOrder::kDescending, ThreadOrder::kRandom};

struct Lengths {
  std::vector<int> n_entries;        // [n_sequences][n_kv_head]
  std::vector<int> first_slot = {};  // likewise; empty: zeros
  std::vector<RowTypes> codes = {};  // of each head's pages in turn
};

LayerAttention layer_of(int n_group, int n_kv_head, int key_dim, int value_dim, EntryType key_type,
                        EntryType value_type) {
  return {.n_head = n_group * n_kv_head,
          .n_kv_head = n_kv_head,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .key_type = key_type,
          .value_type = value_type,
          .scale = 1.0F / std::sqrt(static_cast<float>(key_dim)),
          .soft_cap = 0,
          .sliding_window = 0,
          .sink_logits = nullptr};
}

LayerAttention layer_of(int n_group, int n_kv_head, int dim, EntryType type = EntryType::kF16) {
  return layer_of(n_group, n_kv_head, dim, dim, type, type);
}

// A decode step of several sequences. Every number depends on the seed and on the place among the KV heads, not on the
// number of sequences.
class TestStep {
 public:
  TestStep(const LayerAttention& layer, const Lengths& lengths, unsigned seed = 1, float magnitude = 1.0F)
      : layer_(layer),
        n_sequences_(static_cast<int>(lengths.n_entries.size()) / layer.n_kv_head),
        has_codes_(!lengths.codes.empty()) {
    for (std::size_t row = 0; row < lengths.n_entries.size(); ++row) {
      const int first_slot = lengths.first_slot.empty() ? 0 : lengths.first_slot[row];
      const unsigned row_seed = seed + 10 * static_cast<unsigned>(row);
      add_numbers(q_, layer.n_head / layer.n_kv_head * layer.key_dim, row_seed, magnitude);
      add_numbers(k_, layer.key_dim, row_seed + 1, magnitude);
      add_numbers(v_, layer.value_dim, row_seed + 2, 1.0F);
      for (auto* pages : {&pages_, &expected_pages_}) {
        pages->push_back(std::make_unique<TestPages>(layer, first_slot, lengths.n_entries[row], row_seed + 3, magnitude,
                                                     lengths.codes));
      }
      const int own = lengths.n_entries[row] - 1;
      pages_.back()->clear(own);
      expected_pages_.back()->set(own, k_.data() + row * static_cast<std::size_t>(layer.key_dim),
                                  v_.data() + row * static_cast<std::size_t>(layer.value_dim));
      tables_.push_back(pages_.back()->table());
    }
    workspace_.resize(step_workspace_bytes(n_sequences_, layer.n_head, layer.value_dim) / sizeof(float) + 64, 0.0F);
    out_.resize(static_cast<std::size_t>(n_sequences_ * layer.n_head * layer.value_dim) + 4);
  }

  const std::vector<float>& run(ThreadOrder order, bool stores = true) {
    simt::Queue queue(order);
    std::fill(out_.begin(), out_.end(), std::nanf(""));
    fibers::run(queue, StepAttention{.layer = layer_,
                                     .q = q_.data(),
                                     .k = stores ? k_.data() : nullptr,
                                     .v = stores ? v_.data() : nullptr,
                                     .out = out_.data(),
                                     .heads = tables_.data(),
                                     .n_sequences = n_sequences_,
                                     .has_codes = has_codes_,
                                     .workspace = reinterpret_cast<std::byte*>(workspace_.data())});
    return out_;
  }

  // Returns whether the counters at the workspace's beginning are zero.
  bool leaves_workspace_ready() const {
    const auto n = static_cast<std::size_t>(n_sequences_ * layer_.n_head);
    return std::all_of(workspace_.begin(), workspace_.begin() + static_cast<std::ptrdiff_t>(n),
                       [](float x) { return x == 0.0F; });
  }

  bool stored_own_rows() const {
    return std::equal(pages_.begin(), pages_.end(), expected_pages_.begin(),
                      [](const auto& a, const auto& b) { return *a == *b; });
  }

  // Returns the largest difference to the reference, whose numbers are of the order of 1.
  double largest_error() {
    double largest = 0;
    const int n_group = layer_.n_head / layer_.n_kv_head;
    for (std::size_t row = 0; row < pages_.size(); ++row) {
      const kernels::AttentionShape shape = shape_of(layer_).of_head(static_cast<int>(row) % layer_.n_kv_head);
      const int n = expected_pages_[row]->n_entries();
      const std::vector<double> expected = kernels::reference::decode_attention(
          shape, {.q = q_.data() + row * static_cast<std::size_t>(n_group * layer_.key_dim),
                  .entries = expected_pages_[row]->entries(),
                  .first = 0,
                  .last = n,
                  .size = n,
                  .position = n - 1});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double x = out_[row * expected.size() + i];
        const double error = std::abs(x - expected[i]);
        if (!(error <= largest)) largest = std::isnan(error) ? 1e9 : error;
      }
    }
    return largest;
  }

  // Returns the outputs of one sequence.
  std::vector<float> output(int sequence) const {
    const int n = layer_.n_head * layer_.value_dim;
    return {out_.begin() + sequence * n, out_.begin() + (sequence + 1) * n};
  }

 private:
  static void add_numbers(std::vector<float>& to, int n, unsigned seed, float magnitude) {
    const std::vector<float> numbers = normal_numbers(static_cast<std::size_t>(n), seed, 0, magnitude);
    to.insert(to.end(), numbers.begin(), numbers.end());
  }

  LayerAttention layer_;
  int n_sequences_;
  bool has_codes_;
  std::vector<float> q_, k_, v_, out_, workspace_;
  std::vector<std::unique_ptr<TestPages>> pages_, expected_pages_;
  std::vector<HeadTable> tables_;
};

// Weights are rounded to float16, by up to 2^-11 of their size, and multiplied with values.
constexpr double kTolerance = 5e-4;

void expect_right(const LayerAttention& layer, const Lengths& lengths, float magnitude = 1.0F,
                  double tolerance = kTolerance) {
  std::optional<std::vector<float>> first;
  for (const ThreadOrder order : kOrders) {
    TestStep step(layer, lengths, 1, magnitude);
    const std::vector<float> out = step.run(order);
    EXPECT_LE(step.largest_error(), tolerance);
    EXPECT_TRUE(step.stored_own_rows());
    EXPECT_TRUE(step.leaves_workspace_ready());
    const auto n = (out.size() - 4) * sizeof(float);
    if (first) {
      EXPECT_EQ(std::memcmp(out.data(), first->data(), n), 0) << "another order of threads gives other bits";
    }
    first = out;
  }
}

TEST(StepAttention, IsRightForEveryLength) {
  for (const int dim : {64, 128}) {
    expect_right(layer_of(4, 3, dim), {{1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 300, 1000}});
  }
}

TEST(StepAttention, IsRightForEveryGroup) {
  for (const int n_group : {1, 2, 3, 5, 7, 8, 9, 12, 16, 20}) {
    SCOPED_TRACE(n_group);
    expect_right(layer_of(n_group, 2, 64), {{40, 7, 290, 600}});
  }
}

TEST(StepAttention, IsRightForEveryHeadSize) {
  const int sizes[][2] = {{16, 16},   {48, 64},  {64, 48},   {80, 80},  {96, 96},
                          {112, 112}, {128, 64}, {192, 128}, {256, 256}};
  for (const auto& size : sizes) {
    SCOPED_TRACE(std::to_string(size[0]) + " " + std::to_string(size[1]));
    expect_right(layer_of(3, 2, size[0], size[1], EntryType::kF16, EntryType::kF16), {{70, 17, 530, 33}});
  }
}

TEST(StepAttention, IsRightForEveryType) {
  constexpr EntryType kTypes[] = {EntryType::kF16, EntryType::kBF16};
  for (const EntryType key_type : kTypes) {
    for (const EntryType value_type : kTypes) {
      for (const int dim : {64, 96, 128, 256}) {
        SCOPED_TRACE(std::string(entry_type_name(key_type)) + " " + std::string(entry_type_name(value_type)) + " " +
                     std::to_string(dim));
        expect_right(layer_of(4, 2, dim, dim, key_type, value_type), {{300, 45}});
      }
    }
  }
}

// Pages of codes between pages of floats, whose numbers are rounded to float16 as they are read.
constexpr double kCodesTolerance = 2e-3;

TEST(StepAttention, IsRightForEveryCode) {
  constexpr EntryType kF16 = EntryType::kF16;
  for (const EntryType type : {EntryType::kQ8_0, EntryType::kQ4_0, EntryType::kR4, EntryType::kR3}) {
    for (const int dim : {64, 96, 128, 256}) {
      if (dim > 128 && type != EntryType::kR3) continue;
      SCOPED_TRACE(std::string(entry_type_name(type)) + " " + std::to_string(dim));
      const Lengths lengths = {{300, 45}, {28, 28}, {{kF16, kF16}, {type, type}, {type, type}}};
      expect_right(layer_of(4, 2, dim), lengths, 1.0F, kCodesTolerance);
    }
  }
}

TEST(StepAttention, IsRightForEveryHeadSizeOfCodes) {
  const int sizes[][2] = {{16, 16}, {48, 64}, {64, 48}, {80, 80}, {112, 112}, {64, 128}, {128, 64}, {192, 128}};
  for (const auto& size : sizes) {
    SCOPED_TRACE(std::to_string(size[0]) + " " + std::to_string(size[1]));
    const Lengths lengths = {{270, 33}, {}, {{EntryType::kR3, EntryType::kR4}}};
    expect_right(layer_of(3, 2, size[0], size[1], EntryType::kF16, EntryType::kF16), lengths, 1.0F, kCodesTolerance);
  }
}

TEST(StepAttention, IsRightForPagesOfManyKinds) {
  constexpr EntryType kF16 = EntryType::kF16, kR4 = EntryType::kR4, kR3 = EntryType::kR3, kQ8 = EntryType::kQ8_0;
  const std::vector<RowTypes> codes = {{kF16, kF16}, {kR4, kR4}, {kR3, kF16}, {kF16, kR3}, {kQ8, kR4}, {kR3, kQ8}};
  LayerAttention layer = layer_of(4, 3, 128);
  const Lengths lengths = {{1, 32, 33, 257, 300, 600}, {}, codes};
  expect_right(layer, lengths, 1.0F, kCodesTolerance);
  const std::vector<float> sinks(12, 1.0F);
  layer.sink_logits = sinks.data();
  layer.soft_cap = 20;
  layer.sliding_window = 290;
  expect_right(layer, lengths, 1.0F, kCodesTolerance);
  expect_right(layer_of(20, 1, 64), {{290, 600}, {5, 31}, codes}, 1.0F, kCodesTolerance);
}

TEST(StepAttention, IsRightWhereKeysAreLarge) { expect_right(layer_of(4, 2, 128), {{300, 45}}, 6.0F, 1e-3); }

TEST(StepAttention, IsRightWhereSlotsAreSkipped) {
  expect_right(layer_of(4, 2, 64), {{1, 20, 33, 300, 700, 64}, {31, 13, 16, 15, 7, 1}});
}

TEST(StepAttention, IsRightInWindows) {
  for (const int window : {1, 16, 33, 300, 5000}) {
    SCOPED_TRACE(window);
    LayerAttention layer = layer_of(2, 2, 64);
    layer.sliding_window = window;
    expect_right(layer, {{1, 20, 33, 300, 700, 64}, {31, 13, 16, 15, 7, 1}});
  }
}

TEST(StepAttention, IsRightWithSoftCapAndSinks) {
  const std::vector<float> sinks = {-1.0F, 0.0F, 2.0F, 5.0F, 200.0F, -1e30F};
  LayerAttention layer = layer_of(3, 2, 64);
  layer.sink_logits = sinks.data();
  expect_right(layer, {{1, 20, 33, 700}});
  layer.soft_cap = 2.5F;
  expect_right(layer, {{1, 20, 33, 700}});
  layer.sink_logits = nullptr;
  expect_right(layer, {{300, 20, 33, 700}});
}

TEST(StepAttention, CutsLongHeadsIntoAtMostTheMostSlices) {
  TestStep step(layer_of(2, 1, 64), {{17000, 40}});
  step.run(ThreadOrder::kRandom);
  EXPECT_LE(step.largest_error(), kTolerance);
  EXPECT_TRUE(step.stored_own_rows());
  EXPECT_TRUE(step.leaves_workspace_ready());
}

TEST(StepAttention, IsRightForMoreEntriesThanWhosePagesAreReadAtOnce) {
  TestStep step(layer_of(1, 1, 64), {{64 * 64 * kPageEntries + 2500}});
  step.run(ThreadOrder::kRandom);
  EXPECT_LE(step.largest_error(), kTolerance);
}

TEST(StepAttention, IsRightForMoreHeadsThanThreads) {
  std::vector<int> lengths;
  for (int i = 0; i < 150 * 5; ++i) lengths.push_back(i % 71 == 0 ? 600 : 1 + i % 7);
  TestStep step(layer_of(2, 5, 16), {lengths});
  step.run(ThreadOrder::kRandom);
  EXPECT_LE(step.largest_error(), kTolerance);
  EXPECT_TRUE(step.stored_own_rows());
  EXPECT_TRUE(step.leaves_workspace_ready());
}

TEST(StepAttention, GivesTheSameBitsAloneAndInABatch) {
  const LayerAttention layer = layer_of(4, 2, 64);
  const std::vector<int> lengths = {1200, 40, 3, 600, 17, 290};
  TestStep batch(layer, {lengths});
  batch.run(ThreadOrder::kRandom);
  for (int s = 0; s < 3; ++s) {
    const auto at = static_cast<std::size_t>(2 * s);
    TestStep alone(layer, {{lengths[at], lengths[at + 1]}}, 1 + 20 * static_cast<unsigned>(s));
    alone.run(ThreadOrder::kAscending);
    EXPECT_EQ(alone.output(0), batch.output(s));
  }
}

TEST(StepAttention, StoresNothingWithoutRows) {
  TestStep step(layer_of(2, 2, 64), {{300, 45}});
  const std::vector<float> out = step.run(ThreadOrder::kAscending);  // stores
  EXPECT_EQ(std::memcmp(step.run(ThreadOrder::kDescending, false).data(), out.data(), (out.size() - 4) * sizeof(float)),
            0);
}

TEST(StepAttention, ServesManyStepsWithOneWorkspace) {
  TestStep step(layer_of(2, 2, 64), {{1000, 600}});
  const std::vector<float> out = step.run(ThreadOrder::kAscending);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(std::memcmp(step.run(ThreadOrder::kRandom).data(), out.data(), (out.size() - 4) * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace winnow::device
