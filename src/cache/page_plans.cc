// PageTable's planning: which entries are added, dropped, moved and converted.
#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "cache/page_table.h"
#include "kernels/entries/run_cursor.h"

namespace winnow {
namespace {

// Returns true if the indices are strictly ascending and within [0, n).
[[maybe_unused]] bool are_indices_below(std::int32_t n, std::span<const std::int32_t> indices) {
  return std::adjacent_find(indices.begin(), indices.end(), std::greater_equal<>()) == indices.end() &&
         (indices.empty() || (indices.front() >= 0 && indices.back() < n));
}

// Returns the highest position of the entries. Those on the high pages, which follow the first page, may be out of
// order.
std::int32_t last_position(const kernels::HeadEntries& entries, std::size_t n_high_pages) {
  const auto last_of = [](const kernels::EntryRun& run) { return run.positions[run.n_entries - 1]; };
  const std::int32_t last = last_of(entries.runs.back());
  return n_high_pages == 0 ? last : std::max(last, last_of(entries.runs[n_high_pages]));
}

// Returns the positions of all entries, in the order in which they are stored.
std::vector<std::int32_t> positions_of(const kernels::HeadEntries& entries) {
  std::vector<std::int32_t> positions;
  positions.reserve(static_cast<std::size_t>(entries.n_entries));
  for (const kernels::EntryRun& run : entries.runs) run.positions.append_to(positions, run.n_entries);
  return positions;
}

// Returns the positions of a page's entries, of which the first is in first_slot.
PagePositions page_positions(std::span<const std::int32_t> positions, std::int32_t first_slot) {
  PagePositions placed = {.origin = positions.front()};
  if (positions.back() - positions.front() < kOffsets) return placed;
  std::vector<std::int32_t> far(kPageEntries);
  std::ranges::copy(positions, far.begin() + first_slot);
  placed.far = std::make_shared<const std::vector<std::int32_t>>(std::move(far));
  return placed;
}

// Returns `indices` in the order in which they are stored.
std::vector<std::int32_t> in_storage_order(std::span<const std::int32_t> indices, std::span<const std::int32_t> high) {
  assert(high.size() % kPageEntries == 0);
  if (high.empty()) return {indices.begin(), indices.end()};
  const auto others = indices.subspan(kPlainEntries);
  std::vector<std::int32_t> order(indices.begin(), indices.end() - std::ssize(others));
  order.reserve(indices.size());
  order.insert(order.end(), high.begin(), high.end());
  std::set_difference(others.begin(), others.end(), high.begin(), high.end(), std::back_inserter(order));
  assert(order.size() == indices.size());
  return order;
}

// Returns a plan without changes.
HeadPlan plan_of(const HeadPages& head) {
  return {.n_pages = head.pages.size(),
          .n_entries = head.n_entries,
          .n_skipped = head.n_skipped,
          .n_high_pages = head.n_high_pages,
          .has_origin = head.has_origin};
}

// Returns a move of a page's entries to the same slots of another page.
EntryMove whole_page(const HeadPages& head, std::size_t page, std::int32_t n, PageKind to) {
  return {.from_page = static_cast<std::int32_t>(page),
          .from_slot = head.first_slot(page),
          .to_page = static_cast<std::int32_t>(page),
          .to_slot = static_cast<std::uint8_t>(head.first_slot(page)),
          .n = static_cast<std::uint8_t>(n),
          .from_kind = head.pages[page].kind,
          .to_kind = to};
}

// Returns the index of a page's first entry.
std::int32_t first_entry(const HeadPages& head, std::size_t page) {
  return static_cast<std::int32_t>(page) * kPageEntries + head.first_slot(page) - head.n_skipped;
}

// Adds a page's change to the plan of a cut; `from`: the source of each entry that stays.
void add_cut_page(HeadPlan& plan, const LayerFormat& format, const HeadPages& h, std::size_t page,
                  std::span<const std::int32_t> from, const kernels::HeadEntries& entries, const IsShared& is_shared) {
  const TablePage& old = h.pages[page];
  const PageKind kind = format.cut(page, plan.n_high_pages, h.is_raised);
  const std::int32_t first_slot = h.first_slot(page);
  const std::int32_t first = first_entry(h, page);
  const auto of_page =
      from.subspan(static_cast<std::size_t>(first),
                   static_cast<std::size_t>(std::min(kPageEntries - first_slot, plan.n_entries - first)));
  // Unchanged pages stay, and remain shared with forks.
  bool is_changed = kind != old.kind;
  for (std::int32_t entry = first; const std::int32_t source : of_page) is_changed |= source != entry++;
  if (!is_changed) return;

  PageChange change = {
      .page = page, .kind = kind, .first_placed = first_slot, .n_placed = static_cast<std::int32_t>(of_page.size())};
  if (is_shared(old.id) || format.of(kind).page_bytes() > format.of(old.kind).page_bytes()) {
    change.memory = PageChange::Memory::kFresh;
  } else if (kind != old.kind) {
    change.memory = PageChange::Memory::kFreshIfThere;
  }
  for (const std::int32_t entry : of_page) {
    const std::size_t source = h.page_of_entry(entry);
    plan.positions.push_back(entries.runs[source].positions[h.slot_of_entry(entry) - h.first_slot(source)]);
  }
  change.positions = page_positions(std::span<const std::int32_t>(plan.positions).last(of_page.size()), first_slot);
  plan.changes.push_back(std::move(change));
}

// Adds a cut's moves to a page; `from`: the source of each entry that stays.
void add_cut_moves(HeadPlan& plan, const HeadPages& head, const PageChange& change,
                   std::span<const std::int32_t> from) {
  const std::int32_t first = first_entry(head, change.page);
  for (std::int32_t i = 0, n = 1; i < change.n_placed; i += n) {
    const std::int32_t* entry = from.data() + first + i;
    const std::size_t page = head.page_of_entry(*entry);
    const std::int32_t slot = head.slot_of_entry(*entry);
    const std::int32_t most = std::min(change.n_placed - i, kPageEntries - slot);
    for (n = 1; n < most && entry[n] == *entry + n;) ++n;  // neighbours move together
    if (*entry == first + i && change.memory == PageChange::Memory::kSame) continue;
    plan.moves.push_back({.from_page = static_cast<std::int32_t>(page),
                          .from_slot = slot,
                          .to_page = static_cast<std::int32_t>(change.page),
                          .to_slot = static_cast<std::uint8_t>(change.first_placed + i),
                          .n = static_cast<std::uint8_t>(n),
                          .from_kind = head.pages[page].kind,
                          .to_kind = change.kind});
  }
}

// If entries are dropped from the end of a page that stays, the rest may be near enough for their offsets, which have
// been written in any case.
void forget_far_positions(HeadPlan& plan, const HeadPages& head, const kernels::HeadEntries& entries) {
  const std::size_t last = plan.n_pages - 1;
  const TablePage& page = head.pages[last];
  if (!page.positions.far) return;
  const std::int32_t end = plan.n_skipped + plan.n_entries - static_cast<std::int32_t>(last) * kPageEntries;
  const std::int32_t position = entries.runs[last].positions[end - 1 - head.first_slot(last)];
  if (position - page.positions.origin >= kOffsets) return;
  plan.changes.push_back({.page = last, .kind = page.kind, .positions = {.origin = page.positions.origin}});
}

// Returns a plan that drops all entries but the first n.
HeadPlan plan_shrink(const HeadPages& head, std::int32_t n, const kernels::HeadEntries& entries) {
  HeadPlan plan = plan_of(head);
  plan.n_entries = n;
  plan.n_pages = n == 0 ? 0 : HeadPages::pages_for(head.n_skipped + n);
  if (n == 0) {
    plan.n_high_pages = 0;
    plan.has_origin = false;
    return plan;
  }
  forget_far_positions(plan, head, entries);
  return plan;
}

}  // namespace

std::vector<std::int32_t> PageTable::by_position(const HeadPages& head, const kernels::HeadEntries& entries) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(head.n_entries));
  std::iota(order.begin(), order.end(), 0);
  if (head.n_high_pages == 0) return order;
  const std::vector<std::int32_t> positions = positions_of(entries);
  const auto first = order.begin() + head.entries_on(0);
  std::inplace_merge(first, first + static_cast<std::ptrdiff_t>(head.n_high_pages) * kPageEntries, order.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return positions[static_cast<std::size_t>(a)] < positions[static_cast<std::size_t>(b)];
                     });
  return order;
}

HeadPlan::Range PageTable::origin_range(int layer, int kv_head, HeadPlan::Range quantised, std::int32_t n,
                                        std::int32_t last_position) const {
  const LayerFormat& format = this->layer(layer);
  const bool is_there = head(layer, kv_head).has_origin || has_quantised_keys(layer, kv_head);
  if (!format.has_quantised_keys(PageKind::kQuantised) || is_there) return {};
  HeadPlan::Range range = format.sliding_window > 0 ? quantised : HeadPlan::Range{kPlainEntries, n};
  // truncate() cannot go back once any window has moved on.
  const bool has_left = std::any_of(layers_.begin(), layers_.end(), [&](const LayerFormat& any) {
    return any.sliding_window > 0 && last_position >= any.sliding_window;
  });
  if (is_truncatable_ && !has_left) range.last = std::min(range.last, range.first + kPageEntries);
  return range;
}

bool PageTable::converts_last_page(int layer, int kv_head) const noexcept {
  const HeadPages& h = head(layer, kv_head);
  if (h.n_entries == 0 || h.slot_of_entry(h.n_entries) == 0) return false;
  return h.pages.back().kind != this->layer(layer).incoming(h.pages.size() - 1);
}

HeadPlan PageTable::plan_append(int layer, int kv_head, std::vector<std::int32_t> positions, AppendedAs as,
                                std::size_t n_high_pages, const kernels::HeadEntries& entries,
                                const IsShared& is_shared) const {
  const LayerFormat& format = this->layer(layer);
  const HeadPages& h = head(layer, kv_head);
  HeadPlan plan = plan_of(h);
  if (positions.empty()) return plan;
  const auto kind_of = [&](std::size_t page) {
    if (as == AppendedAs::kIncoming) return format.incoming(page);
    return as == AppendedAs::kAfterCut ? format.after_cut : format.cut(page, n_high_pages, h.is_raised);
  };
  if (h.n_entries == 0) plan.n_skipped = format.skipped(positions.front());
  const std::int32_t first_slot = plan.n_skipped + h.n_entries;
  const std::int32_t end = first_slot + static_cast<std::int32_t>(positions.size());
  plan.n_pages = HeadPages::pages_for(end);
  plan.n_entries = h.n_entries + static_cast<std::int32_t>(positions.size());
  plan.n_high_pages = n_high_pages;

  std::span<const std::int32_t> left = positions;
  for (std::size_t page = HeadPages::page_of(first_slot); page < plan.n_pages; ++page) {
    const std::int32_t page_slot = static_cast<std::int32_t>(page) * kPageEntries;
    const std::int32_t first = std::max(0, first_slot - page_slot);
    const auto of_page = left.first(static_cast<std::size_t>(std::min(kPageEntries, end - page_slot) - first));
    left = left.subspan(of_page.size());
    PageChange change = {.page = page,
                         .kind = kind_of(page),
                         .first_placed = first,
                         .n_placed = static_cast<std::int32_t>(of_page.size())};
    if (page >= h.pages.size()) {
      change.memory = PageChange::Memory::kFresh;
      change.positions = page_positions(of_page, first);
    } else {
      const TablePage& old = h.pages[page];
      if (as != AppendedAs::kIncoming) change.kind = old.kind;
      if (change.kind != old.kind || is_shared(old.id)) {
        change.memory = PageChange::Memory::kFresh;
        plan.moves.push_back(whole_page(h, page, first - h.first_slot(page), change.kind));
      }
      change.positions = old.positions;
      if (of_page.back() - old.positions.origin >= kOffsets) {
        std::vector<std::int32_t> all;
        entries.runs[page].positions.append_to(all, entries.runs[page].n_entries);
        all.insert(all.end(), of_page.begin(), of_page.end());
        change.positions = page_positions(all, h.first_slot(page));
      }
    }
    plan.changes.push_back(std::move(change));
  }
  plan.positions = std::move(positions);
  return plan;
}

HeadPlan PageTable::plan_append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                                     std::span<const std::int32_t> indices, std::span<const std::int32_t> high,
                                     const kernels::HeadEntries& entries, const IsShared& is_shared) const {
  const LayerFormat& format = this->layer(layer);
  const HeadPages& h = head(layer, kv_head);
  assert(are_indices_below(source.n_entries, indices));
  assert(high.empty() || (h.n_entries == 0 && format.has_sink_page()));
  if (indices.empty()) return plan_of(h);
  if (format.raises(h.is_raised)) high = {};

  const std::vector<std::int32_t> order = in_storage_order(indices, high);
  // Runs may be single entries, so walking from the first one for each index would be quadratic.
  std::vector<std::int32_t> positions(order.size()), ascending;
  ascending.reserve(order.size());
  kernels::RunCursor cursor(source);
  for (const std::int32_t index : indices) {
    const kernels::RunCursor::Piece piece = cursor.seek(index);
    ascending.push_back(piece.run->positions[piece.offset]);
  }
  if (high.empty()) {
    positions = std::move(ascending);
  } else {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto at = std::lower_bound(indices.begin(), indices.end(), order[i]) - indices.begin();
      positions[i] = ascending[static_cast<std::size_t>(at)];
    }
  }
  const std::size_t n_high_pages = high.empty() ? h.n_high_pages : high.size() / kPageEntries;
  HeadPlan plan = plan_append(layer, kv_head, std::move(positions), AppendedAs::kCut, n_high_pages, entries, is_shared);
  plan.origin_from =
      origin_range(layer, kv_head, {indices.front(), indices.back() + 1}, source.n_entries, last_position(source, 0));
  plan.has_origin |= !plan.origin_from.is_empty();

  std::size_t next = 0;
  for (const PageChange& change : plan.changes) {
    for (std::int32_t i = 0, n = 1; i < change.n_placed; i += n, next += static_cast<std::size_t>(n)) {
      const std::int32_t* index = order.data() + next;
      for (n = 1; i + n < change.n_placed && index[n] == *index + n;) ++n;  // neighbours move together
      plan.moves.push_back({.from_page = EntryMove::kOutside,
                            .from_slot = *index,
                            .to_page = static_cast<std::int32_t>(change.page),
                            .to_slot = static_cast<std::uint8_t>(change.first_placed + i),
                            .n = static_cast<std::uint8_t>(n),
                            .from_kind = change.kind,
                            .to_kind = change.kind});
    }
  }
  return plan;
}

HeadPlan PageTable::plan_cut(int layer, int kv_head, std::span<const std::int32_t> kept,
                             std::span<const std::int32_t> high, const kernels::HeadEntries& entries,
                             const IsShared& is_shared) const {
  const LayerFormat& format = this->layer(layer);
  const HeadPages& h = head(layer, kv_head);
  assert(format.sliding_window == 0);
  assert(are_indices_below(h.n_entries, kept));
  assert(high.empty() || format.has_sink_page());
  if (kept.empty()) return plan_shrink(h, 0, entries);
  if (format.raises(h.is_raised)) high = {};

  std::vector<std::int32_t> from = in_storage_order(kept, high);
  if (h.n_high_pages > 0) {
    const std::vector<std::int32_t> order = by_position(h, entries);
    for (std::int32_t& entry : from) entry = order[static_cast<std::size_t>(entry)];
  }
  HeadPlan plan = plan_of(h);
  plan.n_entries = static_cast<std::int32_t>(kept.size());
  plan.n_high_pages = high.size() / kPageEntries;
  plan.n_pages = HeadPages::pages_for(h.n_skipped + plan.n_entries);
  plan.origin_from =
      origin_range(layer, kv_head, {0, h.n_entries}, h.n_entries, last_position(entries, h.n_high_pages));
  plan.has_origin |= !plan.origin_from.is_empty();

  for (std::size_t page = 0; page < plan.n_pages; ++page) {
    add_cut_page(plan, format, h, page, from, entries, is_shared);
  }
  // If no page is replaced, as in every stage of a cascade, entries move towards the front. Else they move in any
  // order.
  const bool is_in_order = h.n_high_pages == 0 && high.empty() &&
                           std::all_of(plan.changes.begin(), plan.changes.end(), [](const PageChange& change) {
                             return change.memory == PageChange::Memory::kSame;
                           });
  plan.order = is_in_order ? HeadPlan::Order::kAsListed : HeadPlan::Order::kReadFirst;
  for (const PageChange& change : plan.changes) add_cut_moves(plan, h, change, from);
  if (plan.changes.empty() || plan.changes.back().page + 1 < plan.n_pages) forget_far_positions(plan, h, entries);
  return plan;
}

HeadPlan PageTable::plan_truncate(int layer, int kv_head, std::int32_t position, const kernels::HeadEntries& entries,
                                  const IsShared& is_shared) const {
  const HeadPages& h = head(layer, kv_head);
  std::int32_t n = 0;        // entries below `position`
  std::int32_t n_ahead = 0;  // of these, entries before the first one that is dropped
  std::int32_t n_before = 0;
  for (const kernels::EntryRun& run : entries.runs) {
    const std::int32_t n_of_run = run.positions.count_below(position, run.n_entries);
    if (n_ahead == n_before) n_ahead += n_of_run;
    n += n_of_run;
    n_before += run.n_entries;
  }
  if (n == n_ahead && (h.n_high_pages == 0 || h.page_of_entry(n) > h.n_high_pages)) return plan_shrink(h, n, entries);
  // Entries in more bits stay so as far as they fill whole pages.
  std::vector<std::int32_t> kept(static_cast<std::size_t>(n)), high;
  std::iota(kept.begin(), kept.end(), 0);
  const std::vector<std::int32_t> order = by_position(h, entries);
  for (const std::int32_t i : kept) {
    const std::size_t page = h.page_of_entry(order[static_cast<std::size_t>(i)]);
    if (page >= 1 && page <= h.n_high_pages) high.push_back(i);
  }
  high.resize(high.size() / kPageEntries * kPageEntries);
  return plan_cut(layer, kv_head, kept, high, entries, is_shared);
}

HeadPlan PageTable::plan_convert(int layer, int kv_head, std::size_t page, PageKind kind) const {
  const HeadPages& h = head(layer, kv_head);
  HeadPlan plan = plan_of(h);
  plan.changes.push_back(
      {.page = page, .kind = kind, .memory = PageChange::Memory::kFresh, .positions = h.pages[page].positions});
  plan.moves.push_back(whole_page(h, page, h.entries_on(page), kind));
  return plan;
}

HeadPlan PageTable::plan_quantise(int layer, int kv_head, std::size_t page, const kernels::HeadEntries& entries) const {
  HeadPlan plan = plan_convert(layer, kv_head, page, this->layer(layer).after_cut);
  const std::int32_t n = entries.n_entries;
  plan.origin_from = origin_range(layer, kv_head, {0, n}, n, last_position(entries, head(layer, kv_head).n_high_pages));
  plan.has_origin |= !plan.origin_from.is_empty();
  return plan;
}

}  // namespace winnow
