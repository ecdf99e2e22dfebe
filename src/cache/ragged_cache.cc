#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <utility>

#include "kernels/rows.h"

namespace winnow {
namespace {

// Pages that have n slots.
std::size_t pages_for(std::int32_t n) { return (static_cast<std::size_t>(n) + kPageEntries - 1) / kPageEntries; }

// How many of n slots are on the given page.
std::int32_t entries_on_page(std::int32_t n, std::size_t page) {
  return std::min(kPageEntries, n - static_cast<std::int32_t>(page) * kPageEntries);
}

std::size_t page_of(std::int32_t slot) { return static_cast<std::size_t>(slot / kPageEntries); }

// Strictly ascending and within [0, n).
[[maybe_unused]] bool are_indices_below(std::int32_t n, std::span<const std::int32_t> indices) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < n));
}

// Rows of one type and size as those of another.
class RowConversion {
 public:
  RowConversion(EntryType from, EntryType to, int n)
      : from_(from), to_(to), n_(n), bytes_(row_bytes(to, n)), numbers_(from == to ? 0 : static_cast<std::size_t>(n)) {}

  void convert(const std::byte* source, std::byte* target) {
    if (from_ == to_) {
      std::memcpy(target, source, bytes_);
      return;
    }
    kernels::load_row(from_, source, numbers_.data(), n_);
    kernels::store_row(to_, numbers_.data(), target, n_);
  }

 private:
  EntryType from_, to_;
  int n_;
  std::size_t bytes_;
  std::vector<float> numbers_;
};

}  // namespace

std::size_t CacheShape::entry_bytes(int layer) const {
  return key_bytes(layer) + value_bytes(layer) + sizeof(std::int32_t);
}

int CacheShape::n_heads() const {
  int n = 0;
  for (const LayerShape& layer : layers) n += layer.n_kv_head;
  return n;
}

int CacheShape::n_cut_heads() const {
  int n = 0;
  for (const LayerShape& layer : layers) n += layer.is_cut() ? layer.n_kv_head : 0;
  return n;
}

CacheShape CacheShape::staged() const {
  const auto staged_type = [](EntryType type) {
    const bool is_plain = type == EntryType::kF32 || type == EntryType::kF16 || type == EntryType::kBF16;
    return is_plain ? type : EntryType::kF16;
  };
  CacheShape shape = *this;
  shape.key_type = staged_type(key_type);
  shape.value_type = staged_type(value_type);
  return shape;
}

EntryBytes CacheShape::cut_entry_bytes() const {
  std::size_t stored = 0, f16_rows = 0;
  for (int l = 0; l < n_layer(); ++l) {
    const LayerShape& sizes = layer(l);
    if (!sizes.is_cut()) continue;
    const auto n_heads = static_cast<std::size_t>(sizes.n_kv_head);
    stored += n_heads * entry_bytes(l);
    f16_rows += n_heads * (row_bytes(EntryType::kF16, sizes.key_dim) + row_bytes(EntryType::kF16, sizes.value_dim));
  }
  const double n_heads = std::max(1, n_cut_heads());
  return {.stored = static_cast<double>(stored) / n_heads, .f16_rows = static_cast<double>(f16_rows) / n_heads};
}

std::int64_t CacheShape::full_entries(std::int64_t n_tokens) const {
  std::int64_t n = 0;
  for (const LayerShape& layer : layers) {
    n += layer.n_kv_head * (layer.window > 0 ? std::min<std::int64_t>(n_tokens, layer.window) : n_tokens);
  }
  return n;
}

std::size_t CacheShape::full_bytes(std::int64_t n_tokens) const {
  std::size_t bytes = 0;
  for (int l = 0; l < n_layer(); ++l) {
    if (layer(l).n_kv_head == 0) continue;
    const std::int64_t n = layer(l).window > 0 ? std::min<std::int64_t>(n_tokens, layer(l).window) : n_tokens;
    bytes += static_cast<std::size_t>(n * layer(l).n_kv_head) * entry_bytes(l);
  }
  return bytes;
}

RaggedCache::RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool)
    : shape_(shape), pool_(std::move(pool)) {
  std::size_t n_heads = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const LayerShape& layer = shape.layer(l);
    const bool has_entries = layer.n_kv_head > 0;
    layouts_.push_back({.first_head = n_heads,
                        .key_bytes = has_entries ? shape.key_bytes(l) : 0,
                        .value_bytes = has_entries ? shape.value_bytes(l) : 0,
                        .page_bytes = has_entries ? shape.page_bytes(l) : 0,
                        .window = layer.window});
    n_heads += static_cast<std::size_t>(layer.n_kv_head);
  }
  heads_.resize(n_heads);
}

RaggedCache RaggedCache::fork() const {
  RaggedCache copy(shape_, pool_);
  copy.heads_ = heads_;
  return copy;
}

RaggedCache::Head& RaggedCache::head(int layer, int kv_head) {
  return const_cast<Head&>(std::as_const(*this).head(layer, kv_head));
}

const RaggedCache::Head& RaggedCache::head(int layer, int kv_head) const {
  assert(layer >= 0 && layer < shape_.n_layer() && kv_head >= 0 && kv_head < shape_.layer(layer).n_kv_head);
  return heads_[layout(layer).first_head + static_cast<std::size_t>(kv_head)];
}

std::int32_t RaggedCache::n_entries(int layer, int kv_head) const { return head(layer, kv_head).n_entries; }

std::int64_t RaggedCache::n_entries() const {
  std::int64_t n = 0;
  for (const Head& head : heads_) n += head.n_entries;
  return n;
}

std::int64_t RaggedCache::n_cut_entries() const {
  std::int64_t n = 0;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    if (!shape_.layer(l).is_cut()) continue;
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) n += n_entries(l, h);
  }
  return n;
}

std::size_t RaggedCache::bytes() const {
  std::size_t bytes = 0;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) {
      bytes += static_cast<std::size_t>(n_entries(l, h)) * shape_.entry_bytes(l);
    }
  }
  return bytes;
}

std::size_t RaggedCache::bytes_in_pages() const {
  std::size_t bytes = 0;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) bytes += head(l, h).pages.size() * layout(l).page_bytes;
  }
  return bytes;
}

kernels::HeadEntries RaggedCache::entries(int layer, int kv_head) const {
  const Head& h = head(layer, kv_head);
  return {.runs = h.runs, .n_entries = h.n_entries};
}

RaggedCache::Slot RaggedCache::slot(const Layout& layout, const PageRef& page, std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  std::byte* values = page.data() + kPageEntries * layout.key_bytes;
  std::byte* positions = values + kPageEntries * layout.value_bytes;
  return {.key = page.data() + i * layout.key_bytes,
          .value = values + i * layout.value_bytes,
          .position = static_cast<std::int32_t*>(static_cast<void*>(positions)) + i};
}

RaggedCache::Slot RaggedCache::slot_of(const Layout& layout, const Head& head, std::int32_t entry) {
  const std::int32_t index = head.n_skipped + entry;
  return slot(layout, head.pages[page_of(index)], index % kPageEntries);
}

kernels::EntryRun RaggedCache::run_of(const Layout& layout, const PageRef& page, std::int32_t first_slot,
                                      std::int32_t n_entries) {
  const Slot first = slot(layout, page, first_slot);
  return {.keys = first.key, .values = first.value, .positions = first.position, .n_entries = n_entries};
}

void RaggedCache::make_writable(const Layout& layout, Head& head, std::size_t page) {
  if (!head.pages[page].is_shared()) return;
  PageRef copy = pool_->acquire(layout.page_bytes);
  std::memcpy(copy.data(), head.pages[page].data(), layout.page_bytes);
  head.runs[page] = run_of(layout, copy, page == 0 ? head.n_skipped : 0, head.runs[page].n_entries);
  head.pages[page] = std::move(copy);
}

void RaggedCache::grow(const Layout& layout, Head& head, std::int32_t n, std::int32_t first_position) {
  if (n == 0) return;
  if (head.n_entries == 0) head.n_skipped = layout.window > 0 ? first_position % kPageEntries : 0;
  const std::size_t n_old = head.pages.size();
  const std::int32_t first_slot = head.n_skipped + head.n_entries;
  const std::int32_t end = first_slot + n;
  try {
    while (head.pages.size() < pages_for(end)) {
      head.pages.push_back(pool_->acquire(layout.page_bytes));
      head.runs.push_back(run_of(layout, head.pages.back(), head.pages.size() == 1 ? head.n_skipped : 0, 0));
    }
    const bool writes_to_old_page = n_old > 0 && first_slot % kPageEntries != 0;
    if (writes_to_old_page) make_writable(layout, head, n_old - 1);
  } catch (...) {
    head.pages.resize(n_old);
    head.runs.resize(n_old);
    throw;
  }
  for (std::size_t page = page_of(first_slot); page < head.pages.size(); ++page) {
    head.runs[page].n_entries = entries_on_page(end, page) - (page == 0 ? head.n_skipped : 0);
  }
  head.n_entries += n;
}

void RaggedCache::shrink(Head& head, std::int32_t n) {
  const std::int32_t end = n == 0 ? 0 : head.n_skipped + n;
  head.pages.resize(pages_for(end));
  head.runs.resize(pages_for(end));
  head.n_entries = n;
  if (n == 0) return;
  const std::size_t last = head.runs.size() - 1;
  head.runs.back().n_entries = entries_on_page(end, last) - (last == 0 ? head.n_skipped : 0);
}

void RaggedCache::extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position) {
  Head& h = head(layer, kv_head);
  assert(n >= 0 && first_position >= 0);
  assert(n == 0 || h.n_entries == 0 || h.runs.back().positions[h.runs.back().n_entries - 1] < first_position);
  const std::int32_t n_before = h.n_entries;
  grow(layout(layer), h, n, first_position);
  for (std::int32_t i = 0; i < n; ++i) *slot_of(layout(layer), h, n_before + i).position = first_position + i;
}

void RaggedCache::extend_all(std::int32_t n, std::int32_t first_position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) extend(l, h, n, first_position);
  }
}

void RaggedCache::slide() {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    const Layout& sizes = layout(l);
    for (int kv_head = 0; sizes.window > 0 && kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      Head& h = head(l, kv_head);
      if (h.n_entries <= sizes.window) continue;
      h.n_skipped += h.n_entries - sizes.window;
      h.n_entries = sizes.window;
      const auto n_gone = static_cast<std::ptrdiff_t>(page_of(h.n_skipped));
      h.pages.erase(h.pages.begin(), h.pages.begin() + n_gone);
      h.runs.erase(h.runs.begin(), h.runs.begin() + n_gone);
      h.n_skipped %= kPageEntries;
      const std::int32_t on_first = entries_on_page(h.n_skipped + h.n_entries, 0) - h.n_skipped;
      h.runs.front() = run_of(sizes, h.pages.front(), h.n_skipped, on_first);
    }
  }
}

std::byte* RaggedCache::key_row(int layer, int kv_head, std::int32_t entry) {
  Head& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  make_writable(layout(layer), h, page_of(h.n_skipped + entry));
  return slot_of(layout(layer), h, entry).key;
}

std::byte* RaggedCache::value_row(int layer, int kv_head, std::int32_t entry) {
  Head& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  make_writable(layout(layer), h, page_of(h.n_skipped + entry));
  return slot_of(layout(layer), h, entry).value;
}

void RaggedCache::append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                              std::span<const std::int32_t> indices, const CacheShape& source_shape) {
  assert(are_indices_below(source.n_entries, indices));
  if (indices.empty()) return;
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);

  const std::size_t key_bytes = source_shape.key_bytes(layer), value_bytes = source_shape.value_bytes(layer);
  RowConversion keys(source_shape.key_type, shape_.key_type, shape_.layer(layer).key_dim);
  RowConversion values(source_shape.value_type, shape_.value_type, shape_.layer(layer).value_dim);
  auto run = source.runs.begin();
  std::int32_t run_start = 0;
  const auto seek = [&](std::int32_t index) {
    for (; index >= run_start + run->n_entries; ++run) run_start += run->n_entries;
    return static_cast<std::size_t>(index - run_start);
  };
  const std::size_t first = seek(indices.front());
  std::int32_t entry = h.n_entries;
  grow(sizes, h, static_cast<std::int32_t>(indices.size()), run->positions[first]);
  for (const std::int32_t index : indices) {
    const std::size_t i = seek(index);
    const Slot target = slot_of(sizes, h, entry++);
    keys.convert(run->keys + i * key_bytes, target.key);
    values.convert(run->values + i * value_bytes, target.value);
    *target.position = run->positions[i];
  }
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices) {
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(sizes.window == 0 && h.n_skipped == 0);
  assert(are_indices_below(h.n_entries, indices));
  const auto n_kept = static_cast<std::int32_t>(indices.size());

  // Entries before the first gap stay where they are, and so do the pages that hold nothing else.
  std::int32_t n_still = 0;
  while (n_still < n_kept && indices[static_cast<std::size_t>(n_still)] == n_still) ++n_still;
  if (n_still == n_kept) return shrink(h, n_kept);

  // The first page to be written, and fresh pages in place of those that a fork sees. All acquired before anything
  // moves.
  const std::size_t first_page = page_of(n_still);
  std::vector<PageRef> fresh(pages_for(n_kept));
  for (std::size_t page = first_page; page < fresh.size(); ++page) {
    if (h.pages[page].is_shared()) fresh[page] = pool_->acquire(sizes.page_bytes);
  }

  // An entry never moves up, so in ascending order each is read before its slot is written.
  for (std::int32_t to = static_cast<std::int32_t>(first_page) * kPageEntries; to < n_kept; ++to) {
    const std::int32_t from = indices[static_cast<std::size_t>(to)];
    const std::size_t page = page_of(to);
    if (from == to && !fresh[page]) continue;
    const Slot source = slot(sizes, h.pages[page_of(from)], from % kPageEntries);
    const Slot target = slot(sizes, fresh[page] ? fresh[page] : h.pages[page], to % kPageEntries);
    std::memcpy(target.key, source.key, sizes.key_bytes);
    std::memcpy(target.value, source.value, sizes.value_bytes);
    *target.position = *source.position;
  }

  // The shared pages were read until here.
  for (std::size_t page = first_page; page < fresh.size(); ++page) {
    if (!fresh[page]) continue;
    h.runs[page] = run_of(sizes, fresh[page], 0, kPageEntries);
    h.pages[page] = std::move(fresh[page]);
  }
  shrink(h, n_kept);
}

void RaggedCache::truncate(std::int32_t position) {
  for (Head& h : heads_) {
    std::int32_t n = 0;
    for (const kernels::EntryRun& run : h.runs) {
      if (run.n_entries > 0 && run.positions[run.n_entries - 1] < position) {
        n += run.n_entries;
        continue;
      }
      n += static_cast<std::int32_t>(std::lower_bound(run.positions, run.positions + run.n_entries, position) -
                                     run.positions);
      break;
    }
    shrink(h, n);
  }
}

void RaggedCache::clear() {
  for (Head& h : heads_) h = Head();
}

}  // namespace winnow
