// What a cut does to a head of a RaggedCache: it copies the entries that stay, or moves them within the head's pages.
#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "cache/ragged_cache.h"
#include "kernels/entries/rows.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Strictly ascending and within [0, n).
[[maybe_unused]] bool are_indices_below(std::int32_t n, std::span<const std::int32_t> indices) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < n));
}

}  // namespace

void RaggedCache::append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                              std::span<const std::int32_t> indices, std::span<const std::int32_t> fine) {
  assert(are_indices_below(source.n_entries, indices));
  if (indices.empty()) return;
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(fine.empty() || (h.n_entries == 0 && sizes.has_first_page()));
  if (sizes.raises(h)) fine = {};

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
  const std::int32_t n_before = h.n_entries;
  const std::size_t n_fine_before = h.n_fine;
  const auto origin_before = h.origin;
  try {
    find_origin(sizes, h, source, indices.front(), indices.back() + 1);
    if (!fine.empty()) h.n_fine = fine.size() / kPageEntries;
    grow(sizes, h, static_cast<std::int32_t>(indices.size()),
         source.runs[run_index].positions[static_cast<std::int32_t>(first)], Stage::kCut);
    forget_origin(sizes, h);  // where there is nothing but the first entries
    KeyWriter keys = key_writer(sizes, h);
    const kernels::EntryRun* run = nullptr;
    std::size_t key_bytes = 0, value_bytes = 0;  // of one entry of the run
    std::int32_t entry = n_before;
    for (const std::int32_t index : in_storage_order(indices, fine)) {
      const std::size_t i = seek(index);
      if (run != &source.runs[run_index]) {
        run = &source.runs[run_index];
        key_bytes = row_bytes(run->key_type, sizes.key_dim);
        value_bytes = row_bytes(run->value_type, sizes.value_dim);
      }
      const Format& to = sizes.formats[h.kinds[page_of(h.n_skipped + entry)]];
      const Slot target = slot_of(sizes, h, entry);
      keys.write(run->key_type, run->origin, to.key_type, run->keys + i * key_bytes, target.key);
      kernels::convert_row(run->value_type, to.value_type, run->values + i * value_bytes, target.value,
                           sizes.value_dim);
      set_position(sizes, h, entry++, run->positions[static_cast<std::int32_t>(i)]);
    }
  } catch (...) {
    if (h.n_entries > n_before) shrink(sizes, h, n_before);
    h.n_fine = n_fine_before;
    h.origin = origin_before;
    throw;
  }
}

void RaggedCache::move_forward(const Layout& layout, const Head& h, std::span<const std::int32_t> from,
                               KeyWriter& keys) {
  const auto n_kept = static_cast<std::int32_t>(from.size());
  const auto left_on_page = [&](std::int32_t entry) { return kPageEntries - (h.n_skipped + entry) % kPageEntries; };
  const auto format_of = [&](std::int32_t entry) -> const Format& {
    return layout.formats[h.kinds[page_of(h.n_skipped + entry)]];
  };
  for (std::int32_t to = 0, n = 1; to < n_kept; to += n) {
    const std::int32_t* entry = from.data() + to;
    const Format &before = format_of(*entry), &after = format_of(to);
    const std::int32_t most = &before == &after ? std::min({n_kept - to, left_on_page(to), left_on_page(*entry)}) : 1;
    for (n = 1; n < most && entry[n] == *entry + n;) ++n;  // neighbours move together
    if (*entry == to) continue;
    const Slot source = slot_of(layout, h, *entry), target = slot_of(layout, h, to);
    if (&before != &after) {
      convert_entry(layout, h, before, source, after, target, keys);
      continue;
    }
    std::memmove(target.key, source.key, static_cast<std::size_t>(n) * before.key_bytes);
    std::memmove(target.value, source.value, static_cast<std::size_t>(n) * before.value_bytes);
  }
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices,
                       std::span<const std::int32_t> fine) {
  Head& h = head(layer, kv_head);
  const Layout& sizes = layout(layer);
  assert(sizes.window == 0);
  assert(are_indices_below(h.n_entries, indices));
  assert(fine.empty() || sizes.has_first_page());
  if (sizes.raises(h)) fine = {};
  const auto n_kept = static_cast<std::int32_t>(indices.size());
  if (n_kept == 0) return shrink(sizes, h, 0);

  // Where each entry that stays comes from.
  std::vector<std::int32_t> from = in_storage_order(indices, fine);
  if (h.n_fine > 0) {
    const std::vector<std::int32_t> order = by_position(h);
    for (std::int32_t& entry : from) entry = order[static_cast<std::size_t>(entry)];
  }
  Head target = {.pages = {},
                 .kinds = {},
                 .positions = {},
                 .runs = {},
                 .n_skipped = h.n_skipped,
                 .n_fine = fine.size() / kPageEntries,
                 .is_raised = h.is_raised};
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

  const auto each_moved = [&](const auto& body) {
    for (std::int32_t to = 0; to < n_kept; ++to) {
      const std::size_t page = page_of(h.n_skipped + to);
      if (is_changed[page]) body(to, page, from[static_cast<std::size_t>(to)]);
    }
  };
  const auto kind_of = [&](std::int32_t entry) { return h.kinds[page_of(h.n_skipped + entry)]; };
  std::vector<std::int32_t> positions;  // of those that move
  each_moved([&](std::int32_t, std::size_t, std::int32_t entry) { positions.push_back(position_of(h, entry)); });
  std::vector<PagePositions> placed(n_pages);  // of the pages that change
  std::span<const std::int32_t> left = positions;
  for (std::size_t page = 0; page < n_pages; ++page) {
    if (!is_changed[page]) continue;
    const std::int32_t first_slot = first_slot_of(h, page);
    const std::int32_t end =
        std::min(kPageEntries, h.n_skipped + n_kept - static_cast<std::int32_t>(page) * kPageEntries);
    const auto of_page = left.first(static_cast<std::size_t>(end - first_slot));
    left = left.subspan(of_page.size());
    placed[page].origin = of_page.front();
    if (of_page.back() - of_page.front() < kOffsets) continue;
    placed[page].far = std::make_shared<std::vector<std::int32_t>>(kPageEntries);
    std::ranges::copy(of_page, placed[page].far->begin() + first_slot);
  }

  // Entries move towards the front, where no page changes: as in every stage of a cascade. Else they move in any order,
  // and all that move are copied first.
  bool is_in_order = h.n_fine == 0 && fine.empty();
  for (std::size_t page = 0; page < n_pages; ++page) {
    is_in_order &= !fresh[page] && h.kinds[page] == sizes.settled(target, page);
  }
  std::vector<Kind> kinds;
  std::vector<std::byte> rows;
  if (!is_in_order) {
    std::size_t n_bytes = 0;
    each_moved([&](std::int32_t, std::size_t, std::int32_t entry) {
      kinds.push_back(kind_of(entry));
      n_bytes += sizes.formats[kinds.back()].entry_bytes() - kernels::kPositionBytes;
    });
    rows.resize(n_bytes);
    std::byte* next = rows.data();
    each_moved([&](std::int32_t, std::size_t, std::int32_t entry) {
      const Format& format = sizes.formats[kind_of(entry)];
      const Slot source = slot_of(sizes, h, entry);
      std::memcpy(next, source.key, format.key_bytes);
      std::memcpy(next + format.key_bytes, source.value, format.value_bytes);
      next += format.key_bytes + format.value_bytes;
    });
  }

  KeyWriter keys = [&] {
    const auto origin_before = h.origin;
    try {
      std::vector<kernels::EntryRun> runs;
      find_origin(sizes, h, entries_by_position(layer, kv_head, runs), 0, h.n_entries);
      return key_writer(sizes, h);
    } catch (...) {
      h.origin = origin_before;
      throw;
    }
  }();

  // From here on nothing can fail.
  if (is_in_order) move_forward(sizes, h, from, keys);
  shrink(sizes, h, n_kept);
  h.n_fine = target.n_fine;
  for (std::size_t page = 0; page < n_pages; ++page) {
    if (!is_changed[page]) continue;
    const Kind kind = sizes.settled(h, page);
    // A smaller page, and where there is none its place on the old one.
    if (!fresh[page] && h.kinds[page] != kind) has_memory_for([&] { fresh[page] = acquire(sizes, kind); });
    if (fresh[page]) h.pages[page] = std::move(fresh[page]);
    h.kinds[page] = kind;
    h.positions[page] = std::move(placed[page]);
    renew_run(sizes, h, page);
  }

  std::byte* copied = rows.data();
  auto source_kind = kinds.begin();
  auto position = positions.begin();
  each_moved([&](std::int32_t to, std::size_t page, std::int32_t) {
    if (!is_in_order) {
      const Format& format = sizes.formats[*source_kind++];
      const Slot source = {.key = copied, .value = copied + format.key_bytes, .offset = nullptr};
      convert_entry(sizes, h, format, source, sizes.formats[h.kinds[page]], slot_of(sizes, h, to), keys);
      copied += format.key_bytes + format.value_bytes;
    }
    const std::int32_t offset = *position++ - h.positions[page].origin;
    if (offset < kOffsets) *slot_of(sizes, h, to).offset = static_cast<std::uint16_t>(offset);
  });
  keys.flush();
  forget_origin(sizes, h);
}

void RaggedCache::truncate(std::int32_t position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int kv_head = 0; kv_head < shape_.layer(l).n_kv_head; ++kv_head) {
      Head& h = head(l, kv_head);
      std::int32_t n = 0;          // entries below
      std::int32_t n_ahead = 0;    // of these, those before the first one that goes
      std::vector<bool> is_below;  // in the order of storage
      for (const kernels::EntryRun& run : h.runs) {
        const std::int32_t n_of_run = run.positions.count_below(position, run.n_entries);
        if (n_ahead == std::ssize(is_below)) n_ahead += n_of_run;
        n += n_of_run;
        for (std::int32_t i = 0; i < run.n_entries; ++i) is_below.push_back(i < n_of_run);
      }
      if (n == n_ahead && (h.n_fine == 0 || page_of(h.n_skipped + n) > h.n_fine)) {
        shrink(layout(l), h, n);
        forget_origin(layout(l), h);
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

}  // namespace winnow
