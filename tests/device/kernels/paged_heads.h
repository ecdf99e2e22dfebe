// The heads of a layer, with their entries in pages for device kernels and with the same entries for the processor's
// kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cache/cache_shape.h"
#include "device/kernel_plans.h"
#include "device/kernels/device_pages.h"
#include "kernels/test_head.h"
#include "normal_numbers.h"

namespace winnow::device {

// The number of entries of a head, and the slot of the first one.
struct PagedHead {
  std::int32_t n_entries;
  std::int32_t first_slot = 0;
};

// KV heads of random entries. Slots without an entry hold NaNs, and every page has its own allocation, so that
// sanitizers find reads beyond it.
class PagedHeads {
 public:
  // `heads` lists the layer's KV heads.
  PagedHeads(const LayerAttention& layer, const std::vector<PagedHead>& heads, unsigned seed, float magnitude = 1.0F)
      : layer_(layer) {
    for (const PagedHead& head : heads) {
      rows_.push_back(std::make_unique<kernels::TestHead>(
          shape(), kernels::TestHead::Options{.n_entries = head.n_entries, .magnitude = magnitude}, seed++));
      add_pages(head, rows_.back()->entries());
    }
    for (std::size_t h = 0; h < heads.size(); ++h) {
      tables_.push_back(
          {.pages = pages_[h].data(), .first_slot = heads[h].first_slot, .n_entries = heads[h].n_entries});
      n_most_ = std::max(n_most_, heads[h].n_entries);
    }
  }

  // Returns the shape of one KV head, with the sink logits of all heads.
  kernels::AttentionShape shape() const { return shape_of(layer_); }
  const kernels::HeadEntries& entries(int head) const { return rows_[static_cast<std::size_t>(head)]->entries(); }
  const HeadTable* tables() const { return tables_.data(); }
  std::int32_t n_most() const { return n_most_; }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };

  std::byte* add_rows(const std::byte* from, std::size_t bytes_of_row, int first, int n) {
    std::vector<Word>& page = memory_.emplace_back(bytes_of_row * kPageEntries / sizeof(Word));
    std::memset(static_cast<void*>(page.data()), 0xFF, page.size() * sizeof(Word));
    std::byte* const rows = reinterpret_cast<std::byte*>(page.data());
    std::memcpy(rows + static_cast<std::size_t>(first) * bytes_of_row, from,
                static_cast<std::size_t>(n) * bytes_of_row);
    return rows;
  }

  void add_pages(const PagedHead& head, const kernels::HeadEntries& entries) {
    std::vector<PageRows>& pages = pages_.emplace_back();
    const std::size_t key_bytes = row_bytes(layer_.key_type, layer_.key_dim);
    const std::size_t value_bytes = row_bytes(layer_.value_type, layer_.value_dim);
    for (int done = 0, slot = head.first_slot; done < head.n_entries; slot = 0) {
      const int n = std::min(kPageEntries - slot, head.n_entries - done);
      const auto at = static_cast<std::size_t>(done);
      pages.push_back({.keys = add_rows(entries.runs[0].keys + at * key_bytes, key_bytes, slot, n),
                       .values = add_rows(entries.runs[0].values + at * value_bytes, value_bytes, slot, n)});
      done += n;
    }
  }

  LayerAttention layer_;
  std::vector<std::unique_ptr<kernels::TestHead>> rows_;
  std::vector<std::vector<Word>> memory_;
  std::vector<std::vector<PageRows>> pages_;  // [n_kv_head]
  std::vector<HeadTable> tables_;
  std::int32_t n_most_ = 0;
};

// Random numbers at a 16-byte aligned address.
class AlignedRows {
 public:
  AlignedRows(std::size_t n, unsigned seed, float magnitude = 1.0F) : numbers_(n / 4 + 1) {
    std::mt19937 random(seed);
    test::fill_normal({data(), n}, random, 0, magnitude);
  }
  float* data() { return numbers_.data()->x; }
  const float* data() const { return numbers_.data()->x; }

 private:
  struct alignas(16) Word {
    float x[4];
  };
  std::vector<Word> numbers_;
};

}  // namespace winnow::device
