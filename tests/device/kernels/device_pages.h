// Pages of random rows for tests of device kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "cache/cache_shape.h"
#include "device/kernel_plans.h"
#include "kernels/entries/rows.h"
#include "winnow/entries.h"

namespace winnow::device {

// The pages of one KV head. Each page's rows have their own allocation, so that sanitizers find reads past them. Slots
// without an entry hold NaNs.
class TestPages {
 public:
  TestPages(const LayerAttention& layer, int first_slot, int n_entries, unsigned seed, float magnitude = 1.0F)
      : layer_(layer), first_slot_(first_slot), n_entries_(n_entries) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int n_pages = (first_slot + n_entries + kPageEntries - 1) / kPageEntries;
    for (int i = 0; i < n_pages; ++i) {
      keys_.push_back(new_rows(key_bytes()));
      values_.push_back(new_rows(value_bytes()));
      pages_.push_back({keys_.back().get(), values_.back().get()});
    }
    std::vector<float> row(static_cast<std::size_t>(std::max(layer.key_dim, layer.value_dim)));
    for (int e = 0; e < n_entries; ++e) {
      for (float& x : row) x = magnitude * normal(random);
      kernels::store_row(layer.key_type, row.data(), key(e), layer.key_dim);
      for (float& x : row) x = normal(random);
      kernels::store_row(layer.value_type, row.data(), value(e), layer.value_dim);
    }
  }

  HeadTable table() const { return {pages_.data(), first_slot_, n_entries_}; }
  int n_entries() const { return n_entries_; }

  std::byte* key(int entry) const { return row(true, entry); }
  std::byte* value(int entry) const { return row(false, entry); }
  void set(int entry, const float* k, const float* v) {
    kernels::store_row(layer_.key_type, k, key(entry), layer_.key_dim);
    kernels::store_row(layer_.value_type, v, value(entry), layer_.value_dim);
  }
  // Writes NaNs over an entry.
  void clear(int entry) {
    std::memset(key(entry), 0xFF, key_bytes());
    std::memset(value(entry), 0xFF, value_bytes());
  }

  // Returns whether every byte is the same as in the other's pages.
  bool operator==(const TestPages& other) const {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      if (std::memcmp(pages_[i].keys, other.pages_[i].keys, kPageEntries * key_bytes()) != 0) return false;
      if (std::memcmp(pages_[i].values, other.pages_[i].values, kPageEntries * value_bytes()) != 0) return false;
    }
    return true;
  }

  // Returns runs that stay valid as long as these pages.
  kernels::HeadEntries entries() {
    positions_.clear();
    runs_.clear();
    for (int e = 0; e < n_entries_; ++e) positions_.push_back(e);
    for (int e = 0; e < n_entries_;) {
      const int n = std::min(n_entries_ - e, kPageEntries - (first_slot_ + e) % kPageEntries);
      runs_.push_back({key(e), value(e), positions_.data() + e, n, layer_.key_type, layer_.value_type});
      e += n;
    }
    return {runs_, n_entries_};
  }

 private:
  std::size_t key_bytes() const { return row_bytes(layer_.key_type, layer_.key_dim); }
  std::size_t value_bytes() const { return row_bytes(layer_.value_type, layer_.value_dim); }
  std::byte* row(bool is_key, int entry) const {
    const int slot = first_slot_ + entry;
    const PageRows& page = pages_[static_cast<std::size_t>(slot / kPageEntries)];
    const auto in_page = static_cast<std::size_t>(slot % kPageEntries);
    return is_key ? page.keys + in_page * key_bytes() : page.values + in_page * value_bytes();
  }
  static std::unique_ptr<std::byte[]> new_rows(std::size_t bytes) {
    auto rows = std::make_unique<std::byte[]>(kPageEntries * bytes);
    std::memset(rows.get(), 0xFF, kPageEntries * bytes);
    return rows;
  }

  LayerAttention layer_;
  int first_slot_;
  int n_entries_;
  std::vector<std::unique_ptr<std::byte[]>> keys_, values_;
  std::vector<PageRows> pages_;
  std::vector<std::int32_t> positions_;
  std::vector<kernels::EntryRun> runs_;
};

// Returns the shape of one KV head of the layer, for the kernels of this machine's processor.
inline kernels::AttentionShape shape_of(const LayerAttention& layer) {
  return {.n_group = layer.n_head / layer.n_kv_head,
          .key_dim = layer.key_dim,
          .value_dim = layer.value_dim,
          .key_type = layer.key_type,
          .value_type = layer.value_type,
          .spec = {.scale = layer.scale,
                   .sliding_window = layer.sliding_window,
                   .soft_cap = layer.soft_cap,
                   .sink_logits = layer.sink_logits}};
}

}  // namespace winnow::device
