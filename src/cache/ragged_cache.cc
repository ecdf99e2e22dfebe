#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace winnow {
namespace {

// How many of n slots are on the given page.
std::int32_t entries_on_page(std::int32_t n, std::size_t page) {
  return std::min(kPageEntries, n - static_cast<std::int32_t>(page) * kPageEntries);
}

}  // namespace

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
    const auto format = [&](const auto& types, std::int32_t first_slot = 0) {
      return Format{.key_type = types.key_type,
                    .value_type = types.value_type,
                    .key_bytes = row_bytes(types.key_type, layer.key_dim),
                    .value_bytes = row_bytes(types.value_type, layer.value_dim),
                    .first_slot = first_slot};
    };
    for (Format& any : sizes.formats) any = format(shape);
    if (!shape.has_codes()) continue;
    sizes.formats[kPlain] = format(plain);
    sizes.formats[kHeld] = sizes.formats[kHeldFine] = format(held);
    sizes.formats[kFirst] = format(plain, kPageEntries - kPlainEntries);
    if (shape.fine) sizes.formats[kFine] = format(*shape.fine);
    if (shape.fine) sizes.formats[kHeldFine] = format(*held.fine);
    if (!shape.later) continue;
    if (layer.window > 0) {
      sizes.formats[kCoded] = format(*shape.later);
      continue;
    }
    sizes.formats[kLater] = format(*shape.later);
    sizes.later = kLater;
  }
  heads_.resize(n_heads);
}

RaggedCache RaggedCache::fork() const {
  RaggedCache copy(shape_, pool_);
  copy.heads_ = heads_;
  // Windows may be those of an old file.
  for (std::size_t l = 0; l < layouts_.size(); ++l) copy.layouts_[l].formats[kCoded] = layouts_[l].formats[kCoded];
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
        if (h.positions[page].far) bytes += kFarPositionsBytes;
      }
      if (h.origin) bytes += h.origin->size();
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
  std::byte* offsets = values + format.n_slots() * format.value_bytes;
  return {.key = page.data() + i * format.key_bytes,
          .value = values + i * format.value_bytes,
          .offset = static_cast<std::uint16_t*>(static_cast<void*>(offsets)) + i};
}

RaggedCache::Slot RaggedCache::slot_of(const Layout& layout, const Head& head, std::int32_t entry) {
  const std::int32_t index = head.n_skipped + entry;
  const std::size_t page = page_of(index);
  return slot(layout.formats[head.kinds[page]], head.pages[page], index % kPageEntries);
}

kernels::EntryRun RaggedCache::run_of(const Layout& layout, const Head& head, std::size_t page, std::int32_t first_slot,
                                      std::int32_t n_entries) {
  const Format& format = layout.formats[head.kinds[page]];
  const PagePositions& positions = head.positions[page];
  const Slot first = slot(format, head.pages[page], first_slot);
  return {.keys = first.key,
          .values = first.value,
          .positions = positions.far ? kernels::EntryPositions(positions.far->data() + first_slot)
                                     : kernels::EntryPositions(positions.origin, first.offset),
          .n_entries = n_entries,
          .key_type = format.key_type,
          .value_type = format.value_type,
          .origin = head.origin_of(format)};
}

void RaggedCache::renew_run(const Layout& layout, Head& head, std::size_t page) {
  head.runs[page] = run_of(layout, head, page, first_slot_of(head, page), head.runs[page].n_entries);
}

std::int32_t RaggedCache::position_of(const Head& head, std::int32_t entry) {
  const std::int32_t index = head.n_skipped + entry;
  const std::size_t page = page_of(index);
  return head.runs[page].positions[index % kPageEntries - first_slot_of(head, page)];
}

void RaggedCache::set_position(const Layout& layout, Head& head, std::int32_t entry, std::int32_t position,
                               std::shared_ptr<std::vector<std::int32_t>>* spare) {
  const std::int32_t index = head.n_skipped + entry;
  const std::int32_t at = index % kPageEntries;
  const std::size_t page = page_of(index);
  const std::int32_t first_slot = first_slot_of(head, page);
  PagePositions& stored = head.positions[page];
  bool is_new = at == first_slot;  // what the run reads its positions from
  if (is_new) stored = {.origin = position};
  const std::int32_t offset = position - stored.origin;
  if (offset < kOffsets) {
    *slot_of(layout, head, entry).offset = static_cast<std::uint16_t>(offset);
  } else {
    if (!stored.far || stored.far.use_count() > 1) {
      auto far =
          spare != nullptr && *spare ? std::move(*spare) : std::make_shared<std::vector<std::int32_t>>(kPageEntries);
      for (std::int32_t i = first_slot; i < at; ++i) {
        (*far)[static_cast<std::size_t>(i)] = head.runs[page].positions[i - first_slot];
      }
      stored.far = std::move(far);
      is_new = true;
    }
    (*stored.far)[static_cast<std::size_t>(at)] = position;
  }
  if (is_new) renew_run(layout, head, page);
}

void RaggedCache::make_writable(const Layout& layout, Head& head, std::size_t page) {
  if (!head.pages[page].is_shared()) return;
  const Format& format = layout.formats[head.kinds[page]];
  PageRef copy = acquire(layout, head.kinds[page]);
  std::memcpy(copy.data(), head.pages[page].data(), format.page_bytes());
  head.pages[page] = std::move(copy);
  renew_run(layout, head, page);
}

void RaggedCache::grow(const Layout& layout, Head& head, std::int32_t n, std::int32_t first_position, Stage stage) {
  if (n == 0) return;
  const auto kind_of = [&](std::size_t page) {
    if (stage == Stage::kPlain) return layout.plain(page);
    return stage == Stage::kLater ? layout.later : layout.settled(head, page);
  };
  if (head.n_entries == 0) head.n_skipped = layout.skipped(first_position);
  const std::size_t n_old = head.pages.size();
  const std::int32_t first_slot = head.n_skipped + head.n_entries;
  const std::int32_t end = first_slot + n;
  try {
    while (head.pages.size() < pages_for(end)) {
      const std::size_t page = head.pages.size();
      const Kind kind = kind_of(page);
      head.pages.push_back(acquire(layout, kind));
      head.kinds.push_back(kind);
      head.positions.emplace_back();
      head.runs.push_back(run_of(layout, head, page, first_slot_of(head, page), 0));
    }
    const bool writes_to_old_page = n_old > 0 && first_slot % kPageEntries != 0;
    if (writes_to_old_page && stage == Stage::kPlain && head.kinds[n_old - 1] != layout.plain(n_old - 1)) {
      recode(layout, head, n_old - 1, layout.plain(n_old - 1));
    } else if (writes_to_old_page) {
      make_writable(layout, head, n_old - 1);
    }
  } catch (...) {
    head.pages.resize(n_old);
    head.kinds.resize(n_old);
    head.positions.resize(n_old);
    head.runs.resize(n_old);
    throw;
  }
  for (std::size_t page = page_of(first_slot); page < head.pages.size(); ++page) {
    head.runs[page].n_entries = entries_on_page(end, page) - first_slot_of(head, page);
  }
  head.n_entries += n;
}

void RaggedCache::shrink(const Layout& layout, Head& head, std::int32_t n) {
  const std::int32_t end = n == 0 ? 0 : head.n_skipped + n;
  head.pages.resize(pages_for(end));
  head.kinds.resize(pages_for(end));
  head.positions.resize(pages_for(end));
  head.runs.resize(pages_for(end));
  head.n_entries = n;
  if (n == 0) {
    head.n_fine = 0;
    head.origin.reset();
    return;
  }
  const std::size_t last = head.runs.size() - 1;
  kernels::EntryRun& run = head.runs.back();
  run.n_entries = entries_on_page(end, last) - first_slot_of(head, last);
  PagePositions& positions = head.positions.back();
  if (!positions.far || run.positions[run.n_entries - 1] - positions.origin >= kOffsets) return;
  positions.far.reset();  // the offsets of nearer ones were written
  renew_run(layout, head, last);
}

void RaggedCache::extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position) {
  Head& h = head(layer, kv_head);
  assert(n >= 0 && first_position >= 0);
  assert(n == 0 || h.n_entries == 0 || h.runs.back().positions[h.runs.back().n_entries - 1] < first_position);
  const Layout& sizes = layout(layer);
  const std::int32_t n_before = h.n_entries;
  // Only the page that is there may begin far before.
  std::shared_ptr<std::vector<std::int32_t>> far;
  if (n > 0 && n_before > 0 && first_position + kPageEntries - h.positions.back().origin >= kOffsets) {
    far = std::make_shared<std::vector<std::int32_t>>(kPageEntries);
  }
  grow(sizes, h, n, first_position, Stage::kPlain);
  for (std::int32_t i = 0; i < n; ++i) set_position(sizes, h, n_before + i, first_position + i, &far);
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
  h.positions.erase(h.positions.begin(), h.positions.begin() + n_gone);
  h.runs.erase(h.runs.begin(), h.runs.begin() + n_gone);
  h.n_skipped %= kPageEntries;
  h.runs.front().n_entries = entries_on_page(h.n_skipped + h.n_entries, 0) - h.n_skipped;
  renew_run(sizes, h, 0);
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

void RaggedCache::clear() {
  for (Head& h : heads_) h = Head();
  for (Layout& layout : layouts_) layout.holds_values = false;
}

}  // namespace winnow
