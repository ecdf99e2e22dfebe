#include "cache/page_table.h"

#include <algorithm>
#include <cassert>

namespace winnow {

std::int32_t HeadPages::entries_on(std::size_t page) const {
  const std::int32_t end = n_skipped + n_entries - static_cast<std::int32_t>(page) * kPageEntries;
  return std::min(kPageEntries, end) - first_slot(page);
}

PageTable::PageTable(const CacheShape& shape) : is_truncatable_(shape.is_truncatable) {
  std::size_t n_heads = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    layers_.push_back(layer_format(shape, l));
    first_head_.push_back(n_heads);
    n_heads += static_cast<std::size_t>(shape.layer(l).n_kv_head);
  }
  heads_.resize(n_heads);
}

std::size_t PageTable::index(int layer, int kv_head) const {
  assert(layer >= 0 && layer < std::ssize(layers_) && kv_head >= 0 && kv_head < this->layer(layer).n_kv_head);
  return first_head_[static_cast<std::size_t>(layer)] + static_cast<std::size_t>(kv_head);
}

std::int64_t PageTable::n_entries() const {
  std::int64_t n = 0;
  for (const HeadPages& head : heads_) n += head.n_entries;
  return n;
}

std::int64_t PageTable::n_cut_entries() const {
  std::int64_t n = 0;
  for (int l = 0; l < std::ssize(layers_); ++l) {
    if (layer(l).sliding_window > 0) continue;
    for (int h = 0; h < layer(l).n_kv_head; ++h) n += head(l, h).n_entries;
  }
  return n;
}

std::size_t PageTable::bytes() const {
  std::size_t bytes = 0;
  for (int l = 0; l < std::ssize(layers_); ++l) {
    for (int kv_head = 0; kv_head < layer(l).n_kv_head; ++kv_head) {
      const HeadPages& h = head(l, kv_head);
      for (std::size_t page = 0; page < h.pages.size(); ++page) {
        bytes += static_cast<std::size_t>(h.entries_on(page)) * layer(l).of(h.pages[page].kind).entry_bytes();
        if (h.pages[page].positions.far) bytes += kFarPositionsBytes;
      }
      if (h.has_origin) bytes += row_bytes(EntryType::kF16, layer(l).key_dim);
    }
  }
  return bytes;
}

std::size_t PageTable::bytes_in_pages() const {
  std::size_t bytes = 0;
  for (int l = 0; l < std::ssize(layers_); ++l) {
    for (int h = 0; h < layer(l).n_kv_head; ++h) {
      for (const TablePage& page : head(l, h).pages) bytes += layer(l).of(page.kind).page_bytes();
    }
  }
  return bytes;
}

std::size_t PageTable::bytes_beyond(const PageTable& other) const {
  std::size_t bytes = 0;
  for (int l = 0; l < std::ssize(layers_); ++l) {
    for (int h = 0; h < layer(l).n_kv_head; ++h) {
      const std::vector<TablePage>&mine = head(l, h).pages, &theirs = other.head(l, h).pages;
      if (mine.empty()) continue;
      // Pages that a window has left have been removed from the front.
      std::size_t skipped = 0;
      while (layer(l).sliding_window > 0 && skipped < theirs.size() && theirs[skipped].id != mine[0].id) ++skipped;
      for (std::size_t page = 0; page < mine.size(); ++page) {
        const std::size_t place = page + skipped;
        if (place < theirs.size() && mine[page].id == theirs[place].id) continue;
        bytes += layer(l).of(mine[page].kind).page_bytes();
      }
    }
  }
  return bytes;
}

bool PageTable::has_quantised_keys(int layer, int kv_head) const {
  const LayerFormat& format = this->layer(layer);
  const std::vector<TablePage>& pages = head(layer, kv_head).pages;
  return std::any_of(pages.begin(), pages.end(),
                     [&](const TablePage& page) { return format.has_quantised_keys(page.kind); });
}

bool PageTable::fills_last_page(int layer, int kv_head, std::int32_t n, std::int32_t first_position) const noexcept {
  const HeadPages& h = head(layer, kv_head);
  const std::int32_t slot = h.slot_of_entry(h.n_entries);
  if (h.pages.empty() || slot == 0 || slot + n > kPageEntries) return false;
  const TablePage& last = h.pages.back();
  return last.kind == this->layer(layer).incoming(h.pages.size() - 1) &&
         first_position + n - 1 - last.positions.origin < kOffsets;
}

PageTable::PageRange PageTable::full_pages_to_quantise(int layer, int kv_head) const {
  const HeadPages& h = head(layer, kv_head);
  const std::size_t n_full = HeadPages::page_of(h.n_skipped + h.n_entries);
  std::size_t first = n_full;
  while (first > 0 && h.pages[first - 1].kind == PageKind::kFloat) --first;
  return {first, n_full};
}

std::size_t PageTable::pages_before_window(int layer, int kv_head) const {
  const HeadPages& h = head(layer, kv_head);
  const std::int32_t window = this->layer(layer).sliding_window;
  if (window == 0 || h.n_entries <= window) return 0;
  return h.page_of_entry(h.n_entries - window);
}

void PageTable::slide_window(int layer, int kv_head) noexcept {
  HeadPages& h = at(layer, kv_head);
  const std::int32_t window = this->layer(layer).sliding_window;
  if (window == 0 || h.n_entries <= window) return;
  const std::size_t n_gone = pages_before_window(layer, kv_head);
  h.n_skipped = (h.n_skipped + h.n_entries - window) % kPageEntries;
  h.n_entries = window;
  h.pages.erase(h.pages.begin(), h.pages.begin() + static_cast<std::ptrdiff_t>(n_gone));
}

void PageTable::commit(int layer, int kv_head, const HeadPlan& plan) noexcept {
  HeadPages& h = at(layer, kv_head);
  h.pages.resize(plan.n_pages);
  for (const PageChange& change : plan.changes) {
    h.pages[change.page] = {.id = change.id, .kind = change.kind, .positions = change.positions};
  }
  h.n_entries = plan.n_entries;
  h.n_skipped = plan.n_skipped;
  h.n_high_pages = plan.n_high_pages;
  h.has_origin = plan.has_origin;
}

void PageTable::set_kind(int layer, int kv_head, std::size_t page, PageKind kind) noexcept {
  at(layer, kv_head).pages[page].kind = kind;
}

void PageTable::set_awaits_refit(bool awaits) noexcept {
  for (LayerFormat& layer : layers_) layer.awaits_refit = awaits && layer.sliding_window == 0;
}

bool PageTable::awaits_refit() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const LayerFormat& layer) { return layer.awaits_refit; });
}

void PageTable::set_window_types(int layer, EntryType key_type, EntryType value_type) noexcept {
  LayerFormat& format = layers_[static_cast<std::size_t>(layer)];
  PageFormat& quantised = format.of(PageKind::kQuantised);
  quantised.key_type = key_type;
  quantised.value_type = value_type;
  quantised.key_bytes = row_bytes(key_type, format.key_dim);
  quantised.value_bytes = row_bytes(value_type, format.value_dim);
}

}  // namespace winnow
