#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <utility>

namespace winnow {
namespace {

// Pages that hold n entries.
std::size_t pages_for(std::int32_t n) { return (static_cast<std::size_t>(n) + kPageEntries - 1) / kPageEntries; }

// How many of n entries are on the given page.
std::int32_t entries_on_page(std::int32_t n, std::size_t page) {
  return std::min(kPageEntries, n - static_cast<std::int32_t>(page) * kPageEntries);
}

std::size_t page_of(std::int32_t entry) { return static_cast<std::size_t>(entry / kPageEntries); }

// Strictly ascending and within [0, n).
[[maybe_unused]] bool are_indices_below(std::int32_t n, std::span<const std::int32_t> indices) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < n));
}

}  // namespace

std::size_t CacheShape::entry_bytes() const {
  return row_bytes(key_type, head_dim) + row_bytes(value_type, head_dim) + sizeof(std::int32_t);
}

std::size_t CacheShape::page_bytes() const { return kPageEntries * entry_bytes(); }

RaggedCache::RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool)
    : shape_(shape),
      key_bytes_(row_bytes(shape.key_type, shape.head_dim)),
      value_bytes_(row_bytes(shape.value_type, shape.head_dim)),
      pool_(std::move(pool)),
      heads_(static_cast<std::size_t>(shape.n_layer) * static_cast<std::size_t>(shape.n_kv_head)) {
  assert(shape.n_layer > 0 && shape.n_kv_head > 0);
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
  assert(layer >= 0 && layer < shape_.n_layer && kv_head >= 0 && kv_head < shape_.n_kv_head);
  return heads_[static_cast<std::size_t>(layer) * static_cast<std::size_t>(shape_.n_kv_head) +
                static_cast<std::size_t>(kv_head)];
}

std::int32_t RaggedCache::n_entries(int layer, int kv_head) const { return head(layer, kv_head).n_entries; }

std::int64_t RaggedCache::n_entries() const {
  std::int64_t n = 0;
  for (const Head& head : heads_) n += head.n_entries;
  return n;
}

std::size_t RaggedCache::bytes_in_pages() const {
  std::size_t n_pages = 0;
  for (const Head& head : heads_) n_pages += head.pages.size();
  return n_pages * shape_.page_bytes();
}

kernels::HeadEntries RaggedCache::entries(int layer, int kv_head) const {
  const Head& h = head(layer, kv_head);
  return {.runs = h.runs, .n_entries = h.n_entries};
}

RaggedCache::Slot RaggedCache::slot(const PageRef& page, std::int32_t index) const {
  const auto i = static_cast<std::size_t>(index);
  std::byte* values = page.data() + kPageEntries * key_bytes_;
  std::byte* positions = values + kPageEntries * value_bytes_;
  return {.key = page.data() + i * key_bytes_,
          .value = values + i * value_bytes_,
          .position = static_cast<std::int32_t*>(static_cast<void*>(positions)) + i};
}

kernels::EntryRun RaggedCache::run_of(const PageRef& page, std::int32_t n_entries) const {
  const Slot first = slot(page, 0);
  return {.keys = first.key, .values = first.value, .positions = first.position, .n_entries = n_entries};
}

void RaggedCache::copy_entry(const kernels::EntryRun& source, std::int32_t index, const Slot& target) const {
  const auto i = static_cast<std::size_t>(index);
  std::memcpy(target.key, source.keys + i * key_bytes_, key_bytes_);
  std::memcpy(target.value, source.values + i * value_bytes_, value_bytes_);
  *target.position = source.positions[i];
}

void RaggedCache::make_writable(Head& head, std::size_t page) {
  if (!head.pages[page].is_shared()) return;
  PageRef copy = pool_->acquire(shape_.page_bytes());
  std::memcpy(copy.data(), head.pages[page].data(), shape_.page_bytes());
  head.runs[page] = run_of(copy, head.runs[page].n_entries);
  head.pages[page] = std::move(copy);
}

void RaggedCache::grow(Head& head, std::int32_t n) {
  const std::size_t n_old = head.pages.size();
  const std::int32_t n_entries = head.n_entries + n;
  try {
    while (head.pages.size() < pages_for(n_entries)) {
      head.pages.push_back(pool_->acquire(shape_.page_bytes()));
      head.runs.push_back(run_of(head.pages.back(), 0));
    }
    const bool writes_to_old_page = n > 0 && head.n_entries % kPageEntries != 0;
    if (writes_to_old_page) make_writable(head, n_old - 1);
  } catch (...) {
    head.pages.resize(n_old);
    head.runs.resize(n_old);
    throw;
  }
  for (std::size_t page = page_of(head.n_entries); page < head.pages.size(); ++page) {
    head.runs[page].n_entries = entries_on_page(n_entries, page);
  }
  head.n_entries = n_entries;
}

void RaggedCache::shrink(Head& head, std::int32_t n) {
  head.pages.resize(pages_for(n));
  head.runs.resize(pages_for(n));
  if (n > 0) head.runs.back().n_entries = entries_on_page(n, head.runs.size() - 1);
  head.n_entries = n;
}

void RaggedCache::extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position) {
  Head& h = head(layer, kv_head);
  assert(n >= 0 && first_position >= 0);
  assert(n == 0 || h.n_entries == 0 || h.runs.back().positions[h.runs.back().n_entries - 1] < first_position);
  const std::int32_t n_before = h.n_entries;
  grow(h, n);
  for (std::int32_t i = 0; i < n; ++i) {
    const std::int32_t entry = n_before + i;
    *slot(h.pages[page_of(entry)], entry % kPageEntries).position = first_position + i;
  }
}

std::byte* RaggedCache::key_row(int layer, int kv_head, std::int32_t entry) {
  Head& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  make_writable(h, page_of(entry));
  return slot(h.pages[page_of(entry)], entry % kPageEntries).key;
}

std::byte* RaggedCache::value_row(int layer, int kv_head, std::int32_t entry) {
  Head& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  make_writable(h, page_of(entry));
  return slot(h.pages[page_of(entry)], entry % kPageEntries).value;
}

void RaggedCache::append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                              std::span<const std::int32_t> indices) {
  assert(are_indices_below(source.n_entries, indices));
  Head& h = head(layer, kv_head);
  std::int32_t entry = h.n_entries;
  grow(h, static_cast<std::int32_t>(indices.size()));

  auto run = source.runs.begin();
  std::int32_t run_start = 0;
  for (const std::int32_t index : indices) {
    for (; index >= run_start + run->n_entries; ++run) run_start += run->n_entries;
    copy_entry(*run, index - run_start, slot(h.pages[page_of(entry)], entry % kPageEntries));
    ++entry;
  }
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices) {
  Head& h = head(layer, kv_head);
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
    if (h.pages[page].is_shared()) fresh[page] = pool_->acquire(shape_.page_bytes());
  }

  // An entry never moves up, so in ascending order each is read before its slot is written.
  for (std::int32_t to = static_cast<std::int32_t>(first_page) * kPageEntries; to < n_kept; ++to) {
    const std::int32_t from = indices[static_cast<std::size_t>(to)];
    const std::size_t page = page_of(to);
    if (from == to && !fresh[page]) continue;
    copy_entry(h.runs[page_of(from)], from % kPageEntries,
               slot(fresh[page] ? fresh[page] : h.pages[page], to % kPageEntries));
  }

  // The shared pages were read until here.
  for (std::size_t page = first_page; page < fresh.size(); ++page) {
    if (!fresh[page]) continue;
    h.runs[page] = run_of(fresh[page], kPageEntries);
    h.pages[page] = std::move(fresh[page]);
  }
  shrink(h, n_kept);
}

void RaggedCache::truncate(std::int32_t position) {
  for (Head& h : heads_) {
    std::size_t n_pages = h.runs.size();
    while (n_pages > 0 && h.runs[n_pages - 1].positions[0] >= position) --n_pages;
    if (n_pages == 0) {
      shrink(h, 0);
      continue;
    }
    const kernels::EntryRun& last = h.runs[n_pages - 1];
    const auto* end = std::lower_bound(last.positions, last.positions + last.n_entries, position);
    shrink(h, static_cast<std::int32_t>(n_pages - 1) * kPageEntries + static_cast<std::int32_t>(end - last.positions));
  }
}

void RaggedCache::clear() {
  for (Head& h : heads_) h = Head();
}

}  // namespace winnow
