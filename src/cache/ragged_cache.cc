#include "cache/ragged_cache.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <numeric>
#include <utility>

#include "cache/spare_memory.h"
#include "kernels/entries/rows.h"

namespace winnow {

RaggedCache::RaggedCache(const CacheShape& shape, std::shared_ptr<PagePool> pool)
    : shape_(shape),
      table_(shape),
      store_(std::move(pool), table_.n_heads()),
      runs_(table_.n_heads()),
      first_changes_(table_.n_heads()) {}

RaggedCache::RaggedCache(RaggedCache&& other) noexcept
    : shape_(std::move(other.shape_)),
      table_(std::move(other.table_)),
      store_(std::move(other.store_)),
      runs_(std::move(other.runs_)),
      first_changes_(std::move(other.first_changes_)) {
  std::fill(first_changes_.begin(), first_changes_.end(), 0);
}

RaggedCache& RaggedCache::operator=(RaggedCache&& other) noexcept {
  RaggedCache taken(std::move(other));  // takes the previous contents along
  std::swap(shape_, taken.shape_);
  std::swap(table_, taken.table_);
  std::swap(store_, taken.store_);
  std::swap(runs_, taken.runs_);
  std::swap(first_changes_, taken.first_changes_);
  return *this;
}

RaggedCache::~RaggedCache() {
  for (const HeadPages& head : table_.heads()) {
    for (const TablePage& page : head.pages) store_.release(page);
  }
}

RaggedCache RaggedCache::fork() const {
  RaggedCache copy(shape_, store_.pool());
  copy.store_ = store_;
  copy.runs_ = runs_;
  PageTable table = table_;
  table.set_awaits_refit(false);
  for (const HeadPages& head : table.heads()) copy.store_.retain(head);
  copy.table_ = std::move(table);
  return copy;
}

std::int32_t RaggedCache::n_entries(int layer, int kv_head) const { return head(layer, kv_head).n_entries; }

std::int64_t RaggedCache::n_entries() const { return table_.n_entries(); }

std::int64_t RaggedCache::n_cut_entries() const { return table_.n_cut_entries(); }

std::size_t RaggedCache::bytes() const { return table_.bytes(); }

std::size_t RaggedCache::bytes_in_pages() const { return table_.bytes_in_pages(); }

std::size_t RaggedCache::bytes_beyond(const RaggedCache& other) const {
  assert(shape_ == other.shape_);
  return table_.bytes_beyond(other.table_);
}

bool RaggedCache::is_raised(int layer, int kv_head) const { return head(layer, kv_head).is_raised; }

kernels::HeadEntries RaggedCache::entries(int layer, int kv_head) const {
  const std::size_t i = index(layer, kv_head);
  return {.runs = runs_[i], .n_entries = table_.heads()[i].n_entries};
}

kernels::HeadEntries RaggedCache::entries_by_position(int layer, int kv_head,
                                                      std::vector<kernels::EntryRun>& runs) const {
  const HeadPages& h = head(layer, kv_head);
  if (h.n_high_pages == 0) return entries(layer, kv_head);
  runs.clear();
  std::int32_t last = -1;
  for (const std::int32_t entry : PageTable::by_position(h, entries(layer, kv_head))) {
    const std::int32_t slot = h.slot_of_entry(entry);
    if (entry == last + 1 && !runs.empty() && slot != 0) {
      ++runs.back().n_entries;
    } else {
      const TablePage& page = h.pages[h.page_of_entry(entry)];
      runs.push_back(store_.run(table_.layer(layer), index(layer, kv_head), page, slot, 1));
    }
    last = entry;
  }
  return {.runs = runs, .n_entries = h.n_entries};
}

PageRows RaggedCache::page_rows(int layer, int kv_head, std::size_t page) const {
  const TablePage& own = head(layer, kv_head).pages[page];
  const PageFormat& format = table_.layer(layer).of(own.kind);
  const PageSlot first = store_.slot(format, own.id, 0);
  const auto marked = [](std::byte* rows, EntryType type) {
    return kernels::is_coded(type) ? with_row_type(rows, type) : rows;
  };
  return {.keys = marked(first.key, format.key_type), .values = marked(first.value, format.value_type)};
}

std::size_t RaggedCache::take_changes(int layer, int kv_head) noexcept {
  return std::exchange(first_changes_[index(layer, kv_head)], SIZE_MAX);
}

HeadRows RaggedCache::head_rows(int layer, int kv_head) const {
  HeadRows rows = {.first_slot = first_slot(layer, kv_head),
                   .n_entries = n_entries(layer, kv_head),
                   .origin = origin(layer, kv_head)};
  rows.pages.reserve(n_pages(layer, kv_head));
  for (std::size_t page = 0; page < n_pages(layer, kv_head); ++page) {
    rows.pages.push_back(page_rows(layer, kv_head, page));
  }
  return rows;
}

void RaggedCache::apply(int layer, int kv_head, HeadPlan plan, const kernels::HeadEntries& source) {
  std::vector<kernels::EntryRun>& runs = runs_[index(layer, kv_head)];
  table_.reserve(layer, kv_head, plan.n_pages);
  PageTable::grow(runs, plan.n_pages);
  PageStore::Transaction transaction(store_, table_.layer(layer), index(layer, kv_head), head(layer, kv_head), plan,
                                     source);
  transaction.carry_out();
  const std::vector<TablePage>& before = head(layer, kv_head).pages;
  for (const PageChange& change : plan.changes) {
    const bool is_there =
        change.page < before.size() && change.id == before[change.page].id && change.kind == before[change.page].kind;
    if (!is_there) note_change(layer, kv_head, change.page);
  }
  table_.commit(layer, kv_head, plan);
  runs.resize(head(layer, kv_head).pages.size());
  for (const PageChange& change : plan.changes) renew_run(layer, kv_head, change.page);
  if (!runs.empty()) renew_run(layer, kv_head, runs.size() - 1);
}

void RaggedCache::note_change(int layer, int kv_head, std::size_t page) noexcept {
  std::size_t& first = first_changes_[index(layer, kv_head)];
  first = std::min(first, page);
}

void RaggedCache::renew_run(int layer, int kv_head, std::size_t page) noexcept {
  const HeadPages& h = head(layer, kv_head);
  const std::size_t i = index(layer, kv_head);
  runs_[i][page] = store_.run(table_.layer(layer), i, h.pages[page], h.first_slot(page), h.entries_on(page));
}

void RaggedCache::extend(int layer, int kv_head, std::int32_t n, std::int32_t first_position) {
  assert(n >= 0 && first_position >= 0);
  const kernels::HeadEntries own = entries(layer, kv_head);
  assert(own.n_entries == 0 || own.runs.back().positions[own.runs.back().n_entries - 1] < first_position);
  if (n == 0 || fill_last_page(layer, kv_head, n, first_position)) return;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), first_position);
  apply(layer, kv_head,
        table_.plan_append(layer, kv_head, std::move(positions), AppendedAs::kIncoming,
                           head(layer, kv_head).n_high_pages, own, is_shared()),
        own);
}

bool RaggedCache::fill_last_page(int layer, int kv_head, std::int32_t n, std::int32_t first_position) noexcept {
  const HeadPages& h = head(layer, kv_head);
  if (!table_.fills_last_page(layer, kv_head, n, first_position) || store_.is_shared(h.pages.back().id)) return false;
  const TablePage& page = h.pages.back();
  std::uint16_t* offsets = store_.slot(table_.layer(layer).of(page.kind), page.id, h.slot_of_entry(h.n_entries)).offset;
  for (std::int32_t i = 0; i < n; ++i) {
    offsets[i] = static_cast<std::uint16_t>(first_position + i - page.positions.origin);
  }
  table_.add_to_last_page(layer, kv_head, n);
  runs_[index(layer, kv_head)].back().n_entries += n;
  return true;
}

void RaggedCache::extend_all(std::int32_t n, std::int32_t first_position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) extend(l, h, n, first_position);
  }
}

std::optional<RaggedCache> RaggedCache::fork_to_undo() const {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) {
      if (table_.converts_last_page(l, h)) return fork();
    }
  }
  return std::nullopt;
}

void RaggedCache::undo(std::optional<RaggedCache> before, std::int32_t position) {
  if (before) {
    *this = std::move(*before);
  } else {
    truncate(position);
  }
}

void RaggedCache::append_from(int layer, int kv_head, const kernels::HeadEntries& source,
                              std::span<const std::int32_t> indices, std::span<const std::int32_t> high) {
  if (indices.empty()) return store_.offer_origin(index(layer, kv_head), nullptr);
  apply(layer, kv_head,
        table_.plan_append_from(layer, kv_head, source, indices, high, entries(layer, kv_head), is_shared()), source);
  forget_origin(layer, kv_head);
}

void RaggedCache::keep(int layer, int kv_head, std::span<const std::int32_t> indices,
                       std::span<const std::int32_t> high) {
  std::vector<kernels::EntryRun> runs;
  const kernels::HeadEntries ascending = entries_by_position(layer, kv_head, runs);
  apply(layer, kv_head, table_.plan_cut(layer, kv_head, indices, high, entries(layer, kv_head), is_shared()),
        ascending);
  forget_origin(layer, kv_head);
}

void RaggedCache::truncate(std::int32_t position) {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) {
      std::vector<kernels::EntryRun> runs;
      const kernels::HeadEntries ascending = entries_by_position(l, h, runs);
      apply(l, h, table_.plan_truncate(l, h, position, entries(l, h), is_shared()), ascending);
      forget_origin(l, h);
    }
  }
}

void RaggedCache::settle(int layer, int kv_head) {
  if (table_.layer(layer).sliding_window > 0) slide_window(layer, kv_head);
  if (table_.layer(layer).is_quantised) quantise_full_pages(layer, kv_head);
}

void RaggedCache::settle() {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) settle(l, h);
  }
}

void RaggedCache::slide_window(int layer, int kv_head) noexcept {
  const std::int32_t n_before = n_entries(layer, kv_head);
  const std::size_t n_gone = table_.pages_before_window(layer, kv_head);
  for (std::size_t page = 0; page < n_gone; ++page) store_.release(head(layer, kv_head).pages[page]);
  table_.slide_window(layer, kv_head);
  if (n_entries(layer, kv_head) == n_before) return;
  if (n_gone > 0) note_change(layer, kv_head, 0);
  std::vector<kernels::EntryRun>& runs = runs_[index(layer, kv_head)];
  runs.erase(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(n_gone));
  renew_run(layer, kv_head, 0);
}

void RaggedCache::quantise_full_pages(int layer, int kv_head) {
  const auto [first, last] = table_.full_pages_to_quantise(layer, kv_head);
  if (first == last) return;
  // Pages are quantised from the first on: if memory runs out, the last ones stay as they arrived, and the next call
  // begins with them.
  has_memory_for([&, first = first, last = last] {
    for (std::size_t page = first; page < last; ++page) {
      const kernels::HeadEntries own = entries(layer, kv_head);
      apply(layer, kv_head, table_.plan_quantise(layer, kv_head, page, own), own);
    }
  });
  forget_origin(layer, kv_head);
}

void RaggedCache::forget_origin(int layer, int kv_head) noexcept {
  if (!head(layer, kv_head).has_origin || table_.has_quantised_keys(layer, kv_head)) return;
  table_.set_origin(layer, kv_head, false);
  store_.set_origin(index(layer, kv_head), nullptr);
}

PageSlot RaggedCache::writable_slot(int layer, int kv_head, std::int32_t entry) {
  const HeadPages& h = head(layer, kv_head);
  assert(entry >= 0 && entry < h.n_entries);
  const std::size_t page = h.page_of_entry(entry);
  const PageKind kind = h.pages[page].kind;
  if (store_.is_shared(h.pages[page].id)) apply(layer, kv_head, table_.plan_convert(layer, kv_head, page, kind), {});
  return store_.slot(table_.layer(layer).of(kind), h.pages[page].id, h.slot_of_entry(entry));
}

std::byte* RaggedCache::key_row(int layer, int kv_head, std::int32_t entry) {
  return writable_slot(layer, kv_head, entry).key;
}

std::byte* RaggedCache::value_row(int layer, int kv_head, std::int32_t entry) {
  return writable_slot(layer, kv_head, entry).value;
}

void RaggedCache::store_values(int layer, int kv_head, const float* values) {
  const HeadPages& h = head(layer, kv_head);
  const LayerFormat& format = table_.layer(layer);
  std::vector<std::byte> own;  // a page's values, on their way to a device
  for (std::int32_t entry = 0; entry < h.n_entries;) {
    std::byte* to = value_row(layer, kv_head, entry);
    const std::size_t page = h.page_of_entry(entry);
    const PageFormat& stored = format.of(h.pages[page].kind);
    const std::int32_t n = h.entries_on(page);
    own.resize(store_.is_host() ? 0 : static_cast<std::size_t>(n) * stored.value_bytes);
    std::byte* row = store_.is_host() ? to : own.data();
    for (std::int32_t i = 0; i < n; ++i, row += stored.value_bytes, values += format.value_dim) {
      kernels::store_row(stored.value_type, values, row, format.value_dim);
    }
    if (!store_.is_host()) memory().write(to, own.data(), own.size());
    entry += n;
  }
}

void RaggedCache::hold_values() {
  if (shape_.held() == shape_) return;
  table_.set_awaits_refit(true);
}

bool RaggedCache::holds_values() const { return table_.awaits_refit(); }

void RaggedCache::code_values(const ParallelFor& parallel_for) {
  if (!holds_values()) return;
  std::vector<std::pair<int, int>> heads;  // layer, KV head
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) heads.emplace_back(l, h);
  }
  parallel_for(static_cast<int>(heads.size()), [&](int i) {
    const auto [l, h] = heads[static_cast<std::size_t>(i)];
    for (std::size_t page = 0; page < head(l, h).pages.size(); ++page) quantise_values(l, h, page);
  });
  table_.set_awaits_refit(false);
}

void RaggedCache::quantise_values(int layer, int kv_head, std::size_t page) {
  const TablePage& own = head(layer, kv_head).pages[page];
  const bool is_high = own.kind == PageKind::kHighAwaitingRefit;
  if (is_high || own.kind == PageKind::kAwaitingRefit) {
    const PageKind kind = is_high ? PageKind::kHigh : PageKind::kQuantised;
    if (has_memory_for([&] { apply(layer, kv_head, table_.plan_convert(layer, kv_head, page, kind), {}); })) return;
    // The page belongs to this cut alone.
    store_.quantise_values_in_place(table_.layer(layer), own, kind, head(layer, kv_head).entries_on(page));
    table_.set_kind(layer, kv_head, page, kind);
    note_change(layer, kv_head, page);
    renew_run(layer, kv_head, page);
  } else if (own.kind == PageKind::kFloat && table_.layer(layer).raises(is_raised(layer, kv_head))) {
    has_memory_for([&] { apply(layer, kv_head, table_.plan_convert(layer, kv_head, page, PageKind::kAfterCut), {}); });
  }
}

void RaggedCache::set_feedback(int layer, int kv_head, std::shared_ptr<const kernels::CodeFeedback> feedback) {
  store_.set_feedback(index(layer, kv_head), std::move(feedback));
}

void RaggedCache::drop_feedback() {
  for (std::size_t head = 0; head < runs_.size(); ++head) store_.set_feedback(head, nullptr);
}

void RaggedCache::clear(int layer, int kv_head) noexcept {
  for (const TablePage& page : head(layer, kv_head).pages) store_.release(page);
  table_.clear(layer, kv_head);
  store_.clear(index(layer, kv_head));
  runs_[index(layer, kv_head)].clear();
}

void RaggedCache::clear() {
  for (int l = 0; l < shape_.n_layer(); ++l) {
    for (int h = 0; h < shape_.layer(l).n_kv_head; ++h) clear(l, h);
  }
  table_.set_awaits_refit(false);
}

}  // namespace winnow
