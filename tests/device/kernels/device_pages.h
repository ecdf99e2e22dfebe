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
#include "normal_numbers.h"
#include "winnow/entries.h"

namespace winnow::device {

// The types of a page's rows.
struct RowTypes {
  EntryType key, value;
};

// The pages of one KV head. Each page's rows have their own allocation, so that sanitizers find reads past them. Slots
// without an entry hold NaNs.
class TestPages {
 public:
  // codes: the types of the head's pages in turn, but the last one's; empty: all are the layer's. Codes have an origin.
  TestPages(const LayerAttention& layer, int first_slot, int n_entries, unsigned seed, float magnitude = 1.0F,
            const std::vector<RowTypes>& codes = {})
      : layer_(layer), first_slot_(first_slot), n_entries_(n_entries) {
    std::mt19937 random(seed);
    const int n_pages = (first_slot + n_entries + kPageEntries - 1) / kPageEntries;
    for (int i = 0; i < n_pages; ++i) {
      const bool is_coded = !codes.empty() && i + 1 < n_pages;
      types_.push_back(is_coded ? codes[static_cast<std::size_t>(i) % codes.size()]
                                : RowTypes{layer.key_type, layer.value_type});
      keys_.push_back(new_rows(key_bytes(i)));
      values_.push_back(new_rows(value_bytes(i)));
      pages_.push_back(
          {marked(keys_.back().get(), types_.back().key), marked(values_.back().get(), types_.back().value)});
    }
    if (!codes.empty()) {
      const auto origin = test::normal_numbers(static_cast<std::size_t>(layer.key_dim), random, 0, 2);
      origin_.resize(origin.size() / 8);
      kernels::store_row(EntryType::kF16, origin.data(), reinterpret_cast<std::byte*>(origin_.data()), layer.key_dim);
    }
    std::vector<float> row(static_cast<std::size_t>(std::max(layer.key_dim, layer.value_dim)));
    for (int e = 0; e < n_entries; ++e) {
      test::fill_normal(row, random, 0, magnitude);
      kernels::store_row(types_of(e).key, row.data(), key(e), layer.key_dim);
      test::fill_normal(row, random);
      kernels::store_row(types_of(e).value, row.data(), value(e), layer.value_dim);
    }
  }

  HeadTable table() const { return {pages_.data(), first_slot_, n_entries_, origin()}; }
  const std::vector<PageRows>& pages() const { return pages_; }
  const std::byte* origin() const {
    return origin_.empty() ? nullptr : reinterpret_cast<const std::byte*>(origin_.data());
  }
  int n_entries() const { return n_entries_; }

  std::byte* key(int entry) const { return row(true, entry); }
  std::byte* value(int entry) const { return row(false, entry); }
  void set(int entry, const float* k, const float* v) {
    kernels::store_row(types_of(entry).key, k, key(entry), layer_.key_dim);
    kernels::store_row(types_of(entry).value, v, value(entry), layer_.value_dim);
  }
  // Writes NaNs over an entry.
  void clear(int entry) {
    std::memset(key(entry), 0xFF, key_bytes(page_of(entry)));
    std::memset(value(entry), 0xFF, value_bytes(page_of(entry)));
  }

  // Returns whether every byte is the same as in the other's pages.
  bool operator==(const TestPages& other) const {
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      const auto page = static_cast<int>(i);
      if (std::memcmp(keys_[i].get(), other.keys_[i].get(), kPageEntries * key_bytes(page)) != 0) return false;
      if (std::memcmp(values_[i].get(), other.values_[i].get(), kPageEntries * value_bytes(page)) != 0) return false;
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
      const RowTypes types = types_of(e);
      runs_.push_back({key(e), value(e), positions_.data() + e, n, types.key, types.value,
                       kernels::is_coded(types.key) ? origin() : nullptr});
      e += n;
    }
    return {runs_, n_entries_};
  }

 private:
  struct alignas(16) Word {
    std::byte bytes[16];
  };

  static std::byte* marked(std::byte* rows, EntryType type) {
    return kernels::is_coded(type) ? with_row_type(rows, type) : rows;
  }
  int page_of(int entry) const { return (first_slot_ + entry) / kPageEntries; }
  const RowTypes& types_of(int entry) const { return types_[static_cast<std::size_t>(page_of(entry))]; }
  std::size_t key_bytes(int page) const {
    return row_bytes(types_[static_cast<std::size_t>(page)].key, layer_.key_dim);
  }
  std::size_t value_bytes(int page) const {
    return row_bytes(types_[static_cast<std::size_t>(page)].value, layer_.value_dim);
  }
  std::byte* row(bool is_key, int entry) const {
    const int page = page_of(entry);
    const auto at = static_cast<std::size_t>(page);
    const auto in_page = static_cast<std::size_t>((first_slot_ + entry) % kPageEntries);
    return is_key ? keys_[at].get() + in_page * key_bytes(page) : values_[at].get() + in_page * value_bytes(page);
  }
  static std::unique_ptr<std::byte[]> new_rows(std::size_t bytes) {
    auto rows = std::make_unique<std::byte[]>(kPageEntries * bytes);
    std::memset(rows.get(), 0xFF, kPageEntries * bytes);
    return rows;
  }

  LayerAttention layer_;
  int first_slot_;
  int n_entries_;
  std::vector<RowTypes> types_;                              // [pages]
  std::vector<std::unique_ptr<std::byte[]>> keys_, values_;  // likewise
  std::vector<PageRows> pages_;
  std::vector<Word> origin_;
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
