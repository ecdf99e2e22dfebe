#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <utility>

#include "kernels/rows.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Pages that have n slots.
std::size_t pages_for(std::int32_t n) { return (static_cast<std::size_t>(n) + kPageEntries - 1) / kPageEntries; }

// How many of n slots are on the given page.
std::int32_t entries_on_page(std::int32_t n, std::size_t page) {
  return std::min(kPageEntries, n - static_cast<std::int32_t>(page) * kPageEntries);
}

// Strictly ascending and within [0, n).
[[maybe_unused]] bool are_indices_below(std::int32_t n, std::span<const std::int32_t> indices) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < n));
}

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

CacheShape CacheShape::plain() const {
  CacheShape shape = *this;
  shape.key_type = kernels::plain_type(key_type);
  shape.value_type = kernels::plain_type(value_type);
  return shape;
}

CacheShape CacheShape::held() const {
  CacheShape shape = *this;
  shape.value_type = kernels::plain_type(value_type);
  return shape;
}

EntryBytes CacheShape::cut_entry_bytes() const {
  std::size_t stored = 0, f16_rows = 0, first = 0;
  for (int l = 0; l < n_layer(); ++l) {
    const LayerShape& sizes = layer(l);
    if (!sizes.is_cut()) continue;
    const auto n_heads = static_cast<std::size_t>(sizes.n_kv_head);
    stored += n_heads * entry_bytes(l);
    first += n_heads * (head_bytes(l, kPlainEntries) - kPlainEntries * entry_bytes(l));
    f16_rows += n_heads * (row_bytes(EntryType::kF16, sizes.key_dim) + row_bytes(EntryType::kF16, sizes.value_dim));
  }
  const double n_heads = std::max(1, n_cut_heads());
  return {.stored = static_cast<double>(stored) / n_heads,
          .f16_rows = static_cast<double>(f16_rows) / n_heads,
          .head_extra = static_cast<double>(first) / n_heads};
}

std::size_t CacheShape::head_bytes(int layer, std::int64_t n) const {
  const std::size_t coded = entry_bytes(layer);
  const std::size_t plain = has_codes() && this->layer(layer).window == 0 ? this->plain().entry_bytes(layer) : coded;
  const std::int64_t n_plain = std::min<std::int64_t>(n, kPlainEntries);
  return static_cast<std::size_t>(n_plain) * plain + static_cast<std::size_t>(n - n_plain) * coded;
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
    bytes += static_cast<std::size_t>(layer(l).n_kv_head) * head_bytes(l, n);
  }
  return bytes;
}

RaggedCache::RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool)
    : shape_(shape), pool_(std::move(pool)) {
  const CacheShape plain = shape.plain(), held = shape.held();
  std::size_t n_heads = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const LayerShape& layer = shape.layer(l);
    Layout& sizes = layouts_.emplace_back(Layout{.first_head = n_heads,
                                                 .key_dim = layer.key_dim,
                                                 .value_dim = layer.value_dim,
                                                 .formats = {},
                                                 .window = layer.window,
                                                 .has_codes = shape.has_codes()});
    n_heads += static_cast<std::size_t>(layer.n_kv_head);
    if (layer.n_kv_head == 0) continue;
    const auto format = [&](const CacheShape& types, std::int32_t first_slot) {
      return Format{.key_type = types.key_type,
                    .value_type = types.value_type,
                    .key_bytes = types.key_bytes(l),
                    .value_bytes = types.value_bytes(l),
                    .first_slot = first_slot,
                    .is_plain = &types == &plain};
    };
    for (Format& any : sizes.formats) any = format(shape, 0);
    if (!shape.has_codes()) continue;
    sizes.formats[kPlain] = format(plain, 0);
    sizes.formats[kHeld] = format(held, 0);
    sizes.formats[kFirst] = format(plain, kPageEntries - kPlainEntries);
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
    for (int kv_head = 0; kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      const Head& h = head(l, kv_head);
      for (std::size_t page = 0; page < h.pages.size(); ++page) {
        bytes += static_cast<std::size_t>(h.runs[page].n_entries) * layout(l).formats[h.kinds[page]].entry_bytes();
      }
    }
  }
  return bytes;
}

std::size_t RaggedCache::bytes_in_pages() const {
  std::size_t bytes = 0;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) {
      for (const Kind kind : head(l, h).kinds) bytes += layout(l).formats[kind].page_bytes();
    }
  }
  return bytes;
}

std::size_t RaggedCache::bytes_beyond(const RaggedCache& other) const {
  assert(shape_ == other.shape_);
  std::size_t bytes = 0;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int kv_head = 0; kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      const Head &mine = head(l, kv_head), &theirs = other.head(l, kv_head);
      if (mine.pages.empty()) continue;
      // Pages that a window has left are gone from the front.
      std::size_t skipped = 0;
      while (layout(l).window > 0 && skipped < theirs.pages.size() && !(theirs.pages[skipped] == mine.pages[0])) {
        ++skipped;
      }
      for (std::size_t page = 0; page < mine.pages.size(); ++page) {
        const std::size_t place = page + skipped;
        if (place < theirs.pages.size() && mine.pages[page] == theirs.pages[place]) continue;
        bytes += layout(l).formats[mine.kinds[page]].page_bytes();
      }
    }
  }
  return bytes;
}

kernels::HeadEntries RaggedCache::entries(int layer, int kv_head) const {
  const Head& h = head(layer, kv_head);
  return {.runs = h.runs, .n_entries = h.n_entries};
}

RaggedCache::Slot RaggedCache::slot(const Format& format, const PageRef& page, std::int32_t index) {
  assert(index >= format.first_slot);
  const auto i = static_cast<std::size_t>(index - format.first_slot);
  std::byte* values = page.data() + format.n_slots() * format.key_bytes;
  std::byte* positions = values + format.n_slots() * format.value_bytes;
  return {.key = page.data() + i * format.key_bytes,
          .value = values + i * format.value_bytes,
          .position = static_cast<std::int32_t*>(static_cast<void*>(positions)) + i};
}

RaggedCache::Slot RaggedCache::slot_of(const Layout& layout, const Head& head, std::int32_t entry) {
  const std::int32_t index = head.n_skipped + entry;
  const std::size_t page = page_of(index);
  return slot(layout.formats[head.kinds[page]], head.pages[page], index % kPageEntries);
}

kernels::EntryRun RaggedCache::run_of(const Format& format, const PageRef& page, std::int32_t first_slot,
                                      std::int32_t n_entries) {
  const Slot first = slot(format, page, first_slot);
  return {.keys = first.key,
          .values = first.value,
          .positions = first.position,
          .n_entries = n_entries,
          .is_plain = format.is_plain};
}

void RaggedCache::make_writable(const Layout& layout, Head& head, std::size_t page) {
  if (!head.pages[page].is_shared()) return;
  const Format& format = layout.formats[head.kinds[page]];
  PageRef copy = acquire(layout, head.kinds[page]);
  std::memcpy(copy.data(), head.pages[page].data(), format.page_bytes());
  head.runs[page] = run_of(format, copy, page == 0 ? head.n_skipped : 0, head.runs[page].n_entries);
  head.pages[page] = std::move(copy);
}

void RaggedCache::grow(const Layout& layout, Head& head, std::int32_t n, std::int32_t first_position, bool is_settled) {
  if (n == 0) return;
  if (head.n_entries == 0) head.n_skipped = layout.skipped(first_position);
  const std::size_t n_old = head.pages.size();
  const std::int32_t first_slot = head.n_skipped + head.n_entries;
  const std::int32_t end = first_slot + n;
  try {
    while (head.pages.size() < pages_for(end)) {
      const std::size_t page = head.pages.size();
      const Kind kind = is_settled ? layout.settled(page) : layout.plain(page);
      head.pages.push_back(acquire(layout, kind));
      head.kinds.push_back(kind);
      head.runs.push_back(run_of(layout.formats[kind], head.pages.back(), page == 0 ? head.n_skipped : 0, 0));
    }
    const bool writes_to_old_page = n_old > 0 && first_slot % kPageEntries != 0;
    if (writes_to_old_page && !is_settled && head.kinds[n_old - 1] != layout.plain(n_old - 1)) {
      recode(layout, head, n_old - 1, layout.plain(n_old - 1));
    } else if (writes_to_old_page) {
      make_writable(layout, head, n_old - 1);
    }
  } catch (...) {
    head.pages.resize(n_old);
    head.kinds.resize(n_old);
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
  head.kinds.resize(pages_for(end));
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
  grow(layout(layer), h, n, first_position, false);
  for (std::int32_t i = 0; i < n; ++i) *slot_of(layout(layer), h, n_before + i).position = first_position + i;
}

void RaggedCache::extend_all(std::int32_t n, std::int32_t first_position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) extend(l, h, n, first_position);
  }
}

void RaggedCache::slide(const Layout& sizes, Head& h) {
  if (sizes.window == 0 || h.n_entries <= sizes.window) return;
  h.n_skipped += h.n_entries - sizes.window;
  h.n_entries = sizes.window;
  const auto n_gone = static_cast<std::ptrdiff_t>(page_of(h.n_skipped));
  h.pages.erase(h.pages.begin(), h.pages.begin() + n_gone);
  h.kinds.erase(h.kinds.begin(), h.kinds.begin() + n_gone);
  h.runs.erase(h.runs.begin(), h.runs.begin() + n_gone);
  h.n_skipped %= kPageEntries;
  const std::int32_t on_first = entries_on_page(h.n_skipped + h.n_entries, 0) - h.n_skipped;
  h.runs.front() = run_of(sizes.formats[h.kinds.front()], h.pages.front(), h.n_skipped, on_first);
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

  auto run = source.runs.begin();
  std::int32_t run_start = 0;
  const auto seek = [&](std::int32_t index) {
    for (; index >= run_start + run->n_entries; ++run) run_start += run->n_entries;
    return static_cast<std::size_t>(index - run_start);
  };
  const std::size_t first = seek(indices.front());
  std::int32_t entry = h.n_entries;
  grow(sizes, h, static_cast<std::int32_t>(indices.size()), run->positions[first], true);
  const CacheShape plain_source = source_shape.plain();
  for (const std::int32_t index : indices) {
    const std::size_t i = seek(index);
    const CacheShape& from = run->is_plain ? plain_source : source_shape;
    const Format& to = sizes.formats[h.kinds[page_of(h.n_skipped + entry)]];
    const Slot target = slot_of(sizes, h, entry++);
    kernels::convert_row(from.key_type, to.key_type, run->keys + i * from.key_bytes(layer), target.key, sizes.key_dim);
    kernels::convert_row(from.value_type, to.value_type, run->values + i * from.value_bytes(layer), target.value,
                         sizes.value_dim);
    *target.position = run->positions[i];
  }
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices) {
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(sizes.window == 0);
  assert(are_indices_below(h.n_entries, indices));
  const auto n_kept = static_cast<std::int32_t>(indices.size());

  // Entries before the first gap stay where they are, and so do the pages that hold nothing else and are settled.
  std::int32_t n_still = 0;
  while (n_still < n_kept && indices[static_cast<std::size_t>(n_still)] == n_still) ++n_still;
  const std::size_t n_pages = n_kept == 0 ? 0 : pages_for(h.n_skipped + n_kept);
  std::size_t first_page = n_still == n_kept ? n_pages : page_of(h.n_skipped + n_still);
  for (std::size_t page = 0; page < first_page; ++page) {
    if (h.kinds[page] != sizes.settled(page)) first_page = page;
  }
  if (first_page == n_pages) return shrink(h, n_kept);

  // The first page to be written, and fresh pages in place of those that a fork sees or that are of another kind. All
  // acquired before anything moves.
  std::vector<PageRef> fresh(n_pages);
  for (std::size_t page = first_page; page < n_pages; ++page) {
    const Kind kind = sizes.settled(page);
    if (h.pages[page].is_shared() || h.kinds[page] != kind) fresh[page] = acquire(sizes, kind);
  }

  // An entry never moves up, so in ascending order each is read before its slot is written.
  const auto first_slot = static_cast<std::int32_t>(first_page) * kPageEntries;
  for (std::int32_t to = std::max(0, first_slot - h.n_skipped); to < n_kept; ++to) {
    const std::int32_t from_slot = h.n_skipped + indices[static_cast<std::size_t>(to)];
    const std::int32_t to_slot = h.n_skipped + to;
    const std::size_t page = page_of(to_slot);
    if (from_slot == to_slot && !fresh[page]) continue;
    const Format& from_format = sizes.formats[h.kinds[page_of(from_slot)]];
    const Format& to_format = sizes.formats[sizes.settled(page)];
    const Slot source = slot(from_format, h.pages[page_of(from_slot)], from_slot % kPageEntries);
    const Slot target = slot(to_format, fresh[page] ? fresh[page] : h.pages[page], to_slot % kPageEntries);
    kernels::convert_row(from_format.key_type, to_format.key_type, source.key, target.key, sizes.key_dim);
    kernels::convert_row(from_format.value_type, to_format.value_type, source.value, target.value, sizes.value_dim);
    *target.position = *source.position;
  }

  // The pages in whose place fresh ones come were read until here.
  for (std::size_t page = first_page; page < n_pages; ++page) {
    if (!fresh[page]) continue;
    const std::int32_t skipped = page == 0 ? h.n_skipped : 0;
    h.kinds[page] = sizes.settled(page);
    h.runs[page] = run_of(sizes.formats[h.kinds[page]], fresh[page], skipped, kPageEntries - skipped);
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
  for (Layout& layout : layouts_) layout.holds_values = false;
}

}  // namespace winnow
