// When a RaggedCache codes its entries: full pages once they are settled, values once they are refitted.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>
#include <vector>

#include "cache/ragged_cache.h"
#include "kernels/entries/rows.h"
#include "kernels/entries/run_cursor.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Of the entry with this index.
std::int32_t position_at(const kernels::HeadEntries& entries, std::int32_t index) {
  const kernels::RunCursor::Piece piece = kernels::RunCursor(entries).seek(index);
  return piece.run->positions[piece.offset];
}

}  // namespace

bool RaggedCache::has_coded_keys(const Layout& layout, const Head& head) {
  return std::any_of(head.kinds.begin(), head.kinds.end(),
                     [&](Kind kind) { return kernels::is_coded(layout.formats[kind].key_type); });
}

void RaggedCache::find_origin(const Layout& layout, Head& head, const kernels::HeadEntries& source, std::int32_t first,
                              std::int32_t last) const {
  if (!kernels::is_coded(layout.coded().key_type) || head.origin || has_coded_keys(layout, head)) return;
  if (layout.window == 0) {
    first = kPlainEntries;
    last = source.n_entries;
  }
  // Once any window has moved on there is no way back.
  const auto has_left = [&](const LayerShape& layer) {
    return layer.window > 0 && position_at(source, source.n_entries - 1) >= layer.window;
  };
  const bool is_truncatable = shape_.is_truncatable && std::ranges::none_of(shape_.layers, has_left);
  if (is_truncatable) last = std::min(last, first + kPageEntries);
  if (first >= last) return;
  auto origin = std::make_shared<std::vector<std::byte>>(row_bytes(EntryType::kF16, layout.key_dim));
  kernels::store_mean_key(source, layout.key_dim, first, last, origin->data());
  head.origin = std::move(origin);
}

void RaggedCache::forget_origin(const Layout& layout, Head& head) {
  if (head.origin && !has_coded_keys(layout, head)) head.origin.reset();
}

void RaggedCache::convert_entry(const Layout& layout, const Head& head, const Format& from, const Slot& source,
                                const Format& to, const Slot& target, KeyWriter& keys) {
  // What is only moved, most of a cascade's entries, goes by the formats' sizes: convert_row works out a row's anew.
  if (from.key_type == to.key_type) {
    std::memcpy(target.key, source.key, from.key_bytes);
  } else {
    keys.write(from.key_type, head.origin_of(from), to.key_type, source.key, target.key);
  }
  if (from.value_type == to.value_type) {
    std::memcpy(target.value, source.value, from.value_bytes);
  } else {
    kernels::convert_row(from.value_type, to.value_type, source.value, target.value, layout.value_dim);
  }
}

void RaggedCache::recode(const Layout& layout, Head& head, std::size_t page, Kind kind) {
  const Format& from = layout.formats[head.kinds[page]];
  const Format& to = layout.formats[kind];
  PageRef fresh = acquire(layout, kind);
  const std::int32_t first_slot = first_slot_of(head, page);
  KeyWriter keys = key_writer(layout, head);
  for (std::int32_t i = first_slot; i < first_slot + head.runs[page].n_entries; ++i) {
    const Slot source = slot(from, head.pages[page], i), target = slot(to, fresh, i);
    convert_entry(layout, head, from, source, to, target, keys);
    *target.offset = *source.offset;
  }
  keys.flush();
  head.pages[page] = std::move(fresh);
  head.kinds[page] = kind;
  renew_run(layout, head, page);
}

void RaggedCache::settle(int layer, int kv_head) {
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  slide(sizes, h);
  if (!sizes.has_codes) return;
  const std::size_t n_full = page_of(h.n_skipped + h.n_entries);
  std::size_t page = n_full;
  while (page > 0 && h.kinds[page - 1] == kPlain) --page;
  if (page == n_full) return;
  // From the first on: where memory ends, those that stay plain are the last ones, which the next time begins with.
  has_memory_for([&] {
    find_origin(sizes, h, entries(layer, kv_head), 0, h.n_entries);
    for (; page < n_full; ++page) recode(sizes, h, page, sizes.later);
  });
  forget_origin(sizes, h);
}

void RaggedCache::settle() {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) settle(l, h);
  }
}

void RaggedCache::hold_values() {
  if (shape_.held() == shape_) return;
  for (Layout& layout : layouts_) layout.holds_values = layout.window == 0;
}

bool RaggedCache::holds_values() const {
  return std::any_of(layouts_.begin(), layouts_.end(), [](const Layout& layout) { return layout.holds_values; });
}

void RaggedCache::code_page(const Layout& sizes, Head& h, std::size_t page) {
  const Kind kind = h.kinds[page] == kHeld ? kCoded : kFine;
  if (has_memory_for([&] { recode(sizes, h, page, kind); })) return;
  // The page is this cut's own. Every part begins where it did or lower, so in ascending order each is read before it
  // is written over.
  const Format& from = sizes.formats[h.kinds[page]];
  const Format& to = sizes.formats[kind];
  const std::int32_t n = h.runs[page].n_entries;
  std::byte value[kernels::kMaxHeadDim * sizeof(float)];
  for (std::int32_t i = 0; i < n; ++i) {
    kernels::convert_row(from.value_type, to.value_type, slot(from, h.pages[page], i).value, value, sizes.value_dim);
    std::memcpy(slot(to, h.pages[page], i).value, value, to.value_bytes);
  }
  std::memmove(slot(to, h.pages[page], 0).offset, slot(from, h.pages[page], 0).offset,
               static_cast<std::size_t>(n) * kernels::kPositionBytes);
  h.kinds[page] = kind;
  renew_run(sizes, h, page);
}

void RaggedCache::code_values(const ParallelFor& parallel_for) {
  if (!holds_values()) return;
  std::vector<std::pair<const Layout*, Head*>> heads;
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) heads.emplace_back(&layout(l), &head(l, h));
  }
  parallel_for(static_cast<int>(heads.size()), [&](int i) {
    const auto& [sizes, h] = heads[static_cast<std::size_t>(i)];
    for (std::size_t page = 0; page < h->pages.size(); ++page) {
      if (h->kinds[page] == kHeld || h->kinds[page] == kHeldFine) code_page(*sizes, *h, page);
      if (h->kinds[page] == kPlain && sizes->raises(*h)) has_memory_for([&] { recode(*sizes, *h, page, kLater); });
    }
  });
  for (Layout& layout : layouts_) layout.holds_values = false;
}

void RaggedCache::set_feedback(int layer, int kv_head, std::shared_ptr<const kernels::CodeFeedback> feedback) {
  head(layer, kv_head).feedback = std::move(feedback);
}

void RaggedCache::drop_feedback() {
  for (Head& h : heads_) h.feedback.reset();
}

void RaggedCache::store_value(int layer, int kv_head, std::int32_t entry, const float* value) {
  Head& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  const std::size_t page = page_of(h.n_skipped + entry);
  make_writable(layout(layer), h, page);
  kernels::store_row(layout(layer).formats[h.kinds[page]].value_type, value, slot_of(layout(layer), h, entry).value,
                     layout(layer).value_dim);
}

}  // namespace winnow
