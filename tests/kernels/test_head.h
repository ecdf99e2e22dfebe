// Random entries and queries of one KV head, and a test fixture that runs on every instruction set of the machine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/entries/rows.h"
#include "kernels/simd/isa.h"
#include "normal_numbers.h"
#include "winnow/entries.h"

namespace winnow::kernels {

// Owns the memory that HeadEntries points to. Every run has memory of its own, so that sanitizers find reads past it.
class TestHead {
 public:
  struct Options {
    int n_entries = 100;
    std::vector<int> run_sizes = {};     // used in turn; empty: one long run
    int max_gap = 1;                     // positions grow by 1 to max_gap
    float magnitude = 1.0F;              // standard deviation of the keys
    bool has_plain = false;              // every other run is not coded yet
    std::optional<EntryType> high = {};  // type of every third run instead
    // Standard deviation of an origin that is subtracted from the keys of all runs except every other plain one, whose
    // keys of the same kind are stored whole; 0: no origin.
    float origin = 0.0F;
  };

  TestHead(const AttentionShape& shape, const Options& options, unsigned seed) : shape_(shape) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> gap(1, options.max_gap);
    const auto add_row = [&](EntryType type, int n, float magnitude, std::vector<std::byte>& to,
                             std::span<const float> added = {}) {
      std::vector<float> row = test::normal_numbers(static_cast<std::size_t>(n), random, 0, magnitude);
      for (std::size_t i = 0; i < added.size(); ++i) row[i] += added[i];
      const std::size_t bytes = row_bytes(type, n);
      to.resize(to.size() + bytes);
      store_row(type, row.data(), to.data() + to.size() - bytes, n);
    };
    std::vector<float> origin;
    if (options.origin > 0) {
      add_row(EntryType::kF16, shape.key_dim, options.origin, origin_);
      origin.resize(static_cast<std::size_t>(shape.key_dim));
      load_row(EntryType::kF16, origin_.data(), origin.data(), shape.key_dim);
    }
    int position = -1;
    for (int done = 0, turn = 0; done < options.n_entries; ++turn) {
      const int wanted = options.run_sizes.empty()
                             ? options.n_entries
                             : options.run_sizes[static_cast<std::size_t>(turn) % options.run_sizes.size()];
      const int n = std::min(wanted, options.n_entries - done);
      Run& run = runs_.emplace_back();
      // Runs of the shape's types alternate with plain ones and with those of type `high`, if asked for.
      const auto stored_as = [&](EntryType type) {
        if (options.has_plain && turn % 2 == 0) return plain_type(type);
        const bool is_other = options.high && turn % 3 == 1 && type != plain_type(type) && shape.key_dim % 32 == 0;
        return is_other ? *options.high : type;
      };
      run.key_type = stored_as(shape.key_type);
      run.value_type = stored_as(shape.value_type);
      run.has_origin = !origin.empty() && (is_coded(run.key_type) || turn % 4 < 2);
      for (int i = 0; i < n; ++i) {
        add_row(run.key_type, shape.key_dim, options.magnitude, run.keys, run.has_origin ? std::span<float>() : origin);
        add_row(run.value_type, shape.value_dim, 1.0F, run.values);
        run.positions.push_back(position += gap(random));
      }
      run.keys.shrink_to_fit();
      run.values.shrink_to_fit();
      done += n;
    }
    for (const Run& run : runs_) {
      views_.push_back({run.keys.data(), run.values.data(), run.positions.data(),
                        static_cast<int>(run.positions.size()), run.key_type, run.value_type,
                        run.has_origin ? origin_.data() : nullptr});
    }
    entries_ = {views_, options.n_entries};
    last_position_ = position;
  }

  TestHead(const TestHead&) = delete;
  TestHead& operator=(const TestHead&) = delete;

  const HeadEntries& entries() const { return entries_; }
  int last_position() const { return last_position_; }

 private:
  struct Run {
    std::vector<std::byte> keys, values;
    std::vector<std::int32_t> positions;
    EntryType key_type = EntryType::kF32, value_type = EntryType::kF32;
    bool has_origin = false;
  };
  AttentionShape shape_;
  std::vector<std::byte> origin_;
  std::vector<Run> runs_;
  std::vector<EntryRun> views_;
  HeadEntries entries_;
  int last_position_ = -1;
};

// The query rows of a head's group, embedded in wider rows as the engine has them.
class TestQueries {
 public:
  TestQueries(const AttentionShape& shape, int n_rows, unsigned seed, float magnitude = 1.0F)
      : stride_(shape.n_group * shape.key_dim + 48), n_rows_(n_rows) {
    const auto size = static_cast<std::size_t>(stride_) * static_cast<std::size_t>(n_rows) + 16;
    numbers_ = test::normal_numbers(size, seed, 0, magnitude);
  }

  QueryRows rows(int n_visible, int first_position) const {
    return {numbers_.data() + 16, stride_, n_rows_, n_visible, first_position};
  }
  const float* q() const { return numbers_.data() + 16; }

 private:
  int stride_;
  int n_rows_;
  std::vector<float> numbers_;
};

inline AttentionShape test_shape(int n_group, int head_dim, EntryType type) {
  return {.n_group = n_group,
          .key_dim = head_dim,
          .value_dim = head_dim,
          .key_type = type,
          .value_type = type,
          .spec = {.scale = 1.0F / std::sqrt(static_cast<float>(head_dim))}};
}

// A scratch buffer of exactly the given size, 64-byte-aligned and filled with NaN.
class TestScratch {
 public:
  explicit TestScratch(std::size_t bytes) : memory_(bytes / sizeof(float) + 16, std::nanf("")), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    offset_ = (64 - address % 64) % 64;
  }
  std::span<std::byte> span() { return std::as_writable_bytes(std::span(memory_)).subspan(offset_, bytes_); }

 private:
  std::vector<float> memory_;
  std::size_t bytes_;
  std::size_t offset_;
};

class EveryIsa : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};

// Returns the instruction sets of this machine without some.
inline std::vector<std::string> isas_but(std::initializer_list<std::string_view> left_out) {
  std::vector<std::string> names = supported_isas();
  std::erase_if(names, [&](const std::string& name) { return std::ranges::find(left_out, name) != left_out.end(); });
  return names;
}

// Returns the instruction sets with vectors of their own. The others only add products to one of these.
inline std::vector<std::string> vector_isas() {
  return isas_but({"AVX2_VNNI", "AVX3_BF16", "AMX_BF16", "NEON_DOT", "NEON_I8MM"});
}

// Returns these and the sets that add products of bfloat16, not of bytes.
inline std::vector<std::string> bf16_isas() { return isas_but({"AVX2_VNNI", "NEON_DOT", "NEON_I8MM"}); }

inline std::string isa_test_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace winnow::kernels
