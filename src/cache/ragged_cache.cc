#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <numeric>
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
                    .first_slot = first_slot};
    };
    const auto fine_format = [&](const CacheShape& types) {
      Format fine = format(types, 0);
      if (!types.fine) return fine;
      fine.key_type = types.fine->key_type;
      fine.value_type = types.fine->value_type;
      fine.key_bytes = row_bytes(fine.key_type, layer.key_dim);
      fine.value_bytes = row_bytes(fine.value_type, layer.value_dim);
      return fine;
    };
    for (Format& any : sizes.formats) any = format(shape, 0);
    if (!shape.has_codes()) continue;
    sizes.formats[kPlain] = format(plain, 0);
    sizes.formats[kFine] = fine_format(shape);
    sizes.formats[kHeld] = format(held, 0);
    sizes.formats[kHeldFine] = fine_format(held);
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
          .key_type = format.key_type,
          .value_type = format.value_type};
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
      const Kind kind = is_settled ? layout.settled(head, page) : layout.plain(page);
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
  if (n == 0) head.n_fine = 0;
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
                              std::span<const std::int32_t> indices, std::span<const std::int32_t> fine) {
  assert(are_indices_below(source.n_entries, indices));
  if (indices.empty()) return;
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(fine.empty() || (h.n_entries == 0 && sizes.has_first_page()));

  std::vector<std::int32_t> ends;  // of the source's runs
  for (const kernels::EntryRun& run : source.runs) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + run.n_entries);
  }
  std::size_t run_index = 0;
  const auto seek = [&](std::int32_t index) {
    const bool is_there = index < ends[run_index] && (run_index == 0 || index >= ends[run_index - 1]);
    if (!is_there) {
      run_index = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), index) - ends.begin());
    }
    return static_cast<std::size_t>(index - (run_index == 0 ? 0 : ends[run_index - 1]));
  };
  const std::size_t first = seek(indices.front());
  std::int32_t entry = h.n_entries;
  const std::size_t n_fine_before = h.n_fine;
  if (!fine.empty()) h.n_fine = fine.size() / kPageEntries;
  try {
    grow(sizes, h, static_cast<std::int32_t>(indices.size()), source.runs[run_index].positions[first], true);
  } catch (...) {
    h.n_fine = n_fine_before;
    throw;
  }
  for (const std::int32_t index : in_storage_order(indices, fine)) {
    const std::size_t i = seek(index);
    const kernels::EntryRun& run = source.runs[run_index];
    const Format& to = sizes.formats[h.kinds[page_of(h.n_skipped + entry)]];
    const Slot target = slot_of(sizes, h, entry++);
    kernels::convert_row(run.key_type, to.key_type, run.keys + i * row_bytes(run.key_type, sizes.key_dim), target.key,
                         sizes.key_dim);
    kernels::convert_row(run.value_type, to.value_type, run.values + i * row_bytes(run.value_type, sizes.value_dim),
                         target.value, sizes.value_dim);
    *target.position = run.positions[i];
  }
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices,
                       std::span<const std::int32_t> fine) {
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(sizes.window == 0);
  assert(are_indices_below(h.n_entries, indices));
  assert(fine.empty() || sizes.has_first_page());
  const auto n_kept = static_cast<std::int32_t>(indices.size());
  if (n_kept == 0) return shrink(h, 0);

  // Where each entry that stays comes from.
  std::vector<std::int32_t> from = in_storage_order(indices, fine);
  if (h.n_fine > 0) {
    const std::vector<std::int32_t> order = by_position(h);
    for (std::int32_t& entry : from) entry = order[static_cast<std::size_t>(entry)];
  }
  Head target = {.pages = {}, .kinds = {}, .runs = {}, .n_skipped = h.n_skipped, .n_fine = fine.size() / kPageEntries};
  const std::size_t n_pages = pages_for(h.n_skipped + n_kept);

  // What happens to a page: pages on which nothing changes stay, and so does what is shared with a fork there.
  std::vector<bool> is_changed(n_pages);
  for (std::size_t page = 0; page < n_pages; ++page) is_changed[page] = h.kinds[page] != sizes.settled(target, page);
  for (std::int32_t to = 0; to < n_kept; ++to) {
    if (from[static_cast<std::size_t>(to)] != to) is_changed[page_of(h.n_skipped + to)] = true;
  }

  // Fresh pages where a fork sees the old ones or these have no room; all acquired before anything moves.
  std::vector<PageRef> fresh(n_pages);
  for (std::size_t page = 0; page < n_pages; ++page) {
    const Kind kind = sizes.settled(target, page);
    const bool has_room = sizes.formats[kind].page_bytes() <= sizes.formats[h.kinds[page]].page_bytes();
    if (is_changed[page] && (h.pages[page].is_shared() || !has_room)) fresh[page] = acquire(sizes, kind);
  }

  // Entries move in any order: all that move are copied first.
  std::size_t n_bytes = 0;
  const auto each_moved = [&](const auto& body) {
    for (std::int32_t to = 0; to < n_kept; ++to) {
      const std::size_t page = page_of(h.n_skipped + to);
      if (is_changed[page]) body(to, page, from[static_cast<std::size_t>(to)]);
    }
  };
  const auto kind_of = [&](std::int32_t entry) { return h.kinds[page_of(h.n_skipped + entry)]; };
  std::vector<Kind> kinds;
  each_moved([&](std::int32_t, std::size_t, std::int32_t entry) {
    kinds.push_back(kind_of(entry));
    n_bytes += sizes.formats[kinds.back()].entry_bytes();
  });
  std::vector<std::byte> rows(n_bytes);
  std::byte* next = rows.data();
  const auto take = [&](std::size_t n) { return std::exchange(next, next + n); };
  each_moved([&](std::int32_t, std::size_t, std::int32_t entry) {
    const Format& format = sizes.formats[kind_of(entry)];
    const Slot source = slot_of(sizes, h, entry);
    std::memcpy(take(format.key_bytes), source.key, format.key_bytes);
    std::memcpy(take(format.value_bytes), source.value, format.value_bytes);
    std::memcpy(take(sizeof(std::int32_t)), source.position, sizeof(std::int32_t));
  });

  shrink(h, n_kept);
  h.n_fine = target.n_fine;
  for (std::size_t page = 0; page < n_pages; ++page) {
    if (!is_changed[page]) continue;
    const Kind kind = sizes.settled(h, page);
    if (!fresh[page] && h.kinds[page] != kind) {
      try {  // a smaller page, and where there is none its place on the old one
        fresh[page] = acquire(sizes, kind);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kOutOfMemory) throw;
      }
    }
    if (fresh[page]) h.pages[page] = std::move(fresh[page]);
    h.kinds[page] = kind;
    h.runs[page] = run_of(sizes.formats[kind], h.pages[page], page == 0 ? h.n_skipped : 0, h.runs[page].n_entries);
  }

  next = rows.data();
  auto source_kind = kinds.begin();
  each_moved([&](std::int32_t to, std::size_t page, std::int32_t) {
    const Format& source = sizes.formats[*source_kind++];
    const Format& format = sizes.formats[h.kinds[page]];
    const Slot stored = slot_of(sizes, h, to);
    kernels::convert_row(source.key_type, format.key_type, take(source.key_bytes), stored.key, sizes.key_dim);
    kernels::convert_row(source.value_type, format.value_type, take(source.value_bytes), stored.value, sizes.value_dim);
    std::memcpy(stored.position, take(sizeof(std::int32_t)), sizeof(std::int32_t));
  });
}

void RaggedCache::truncate(std::int32_t position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int kv_head = 0; kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      Head& h = head(l, kv_head);
      std::int32_t n = 0;          // entries below
      std::int32_t n_ahead = 0;    // of these, those before the first one that goes
      std::vector<bool> is_below;  // in the order of storage
      for (const kernels::EntryRun& run : h.runs) {
        const auto n_of_run = static_cast<std::int32_t>(
            std::lower_bound(run.positions, run.positions + run.n_entries, position) - run.positions);
        if (n_ahead == std::ssize(is_below)) n_ahead += n_of_run;
        n += n_of_run;
        for (std::int32_t i = 0; i < run.n_entries; ++i) is_below.push_back(i < n_of_run);
      }
      if (n == n_ahead && (h.n_fine == 0 || page_of(h.n_skipped + n) > h.n_fine)) {
        shrink(h, n);
        continue;
      }
      // Whole pages of those in more bits stay so.
      std::vector<std::int32_t> indices(static_cast<std::size_t>(n)), fine;
      std::iota(indices.begin(), indices.end(), 0);
      const std::vector<std::int32_t> order = by_position(h);
      for (const std::int32_t i : indices) {
        const std::size_t page = page_of(h.n_skipped + order[static_cast<std::size_t>(i)]);
        if (page >= 1 && page <= h.n_fine) fine.push_back(i);
      }
      fine.resize(fine.size() / kPageEntries * kPageEntries);
      keep(l, kv_head, indices, fine);
    }
  }
}

void RaggedCache::clear() {
  for (Head& h : heads_) h = Head();
  for (Layout& layout : layouts_) layout.holds_values = false;
}

}  // namespace winnow
