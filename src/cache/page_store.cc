#include "cache/page_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/entry_copies.h"
#include "cache/spare_memory.h"
#include "kernels/entries/rows.h"

namespace winnow {
namespace {

bool is_outside(const EntryMove& move) { return move.from_page == EntryMove::kOutside; }

}  // namespace

void PageStore::retain(const HeadPages& table) noexcept {
  for (const TablePage& page : table.pages) pool_->retain(page.id);
}

PageSlot PageStore::slot(const PageFormat& format, PageId page, std::int32_t index) const {
  std::byte* keys = pool_->data(page);
  const auto i = static_cast<std::size_t>(index - format.first_slot);
  std::byte* values = keys + format.n_slots() * format.key_bytes;
  std::byte* offsets = is_host_ ? values + format.n_slots() * format.value_bytes : pool_->beside(page);
  return {.key = keys + i * format.key_bytes,
          .value = values + i * format.value_bytes,
          .offset = static_cast<std::uint16_t*>(static_cast<void*>(offsets)) + i};
}

kernels::EntryRun PageStore::run(const LayerFormat& layer, std::size_t head, const TablePage& page,
                                 std::int32_t first_slot, std::int32_t n) const {
  const PageFormat& format = layer.of(page.kind);
  const PageSlot first = slot(format, page.id, first_slot);
  const Origin& origin = heads_[head].origin;
  return {.keys = first.key,
          .values = first.value,
          .positions = page.positions.far ? kernels::EntryPositions(page.positions.far->data() + first_slot)
                                          : kernels::EntryPositions(page.positions.origin, first.offset),
          .n_entries = n,
          .key_type = format.key_type,
          .value_type = format.value_type,
          .origin = origin && kernels::is_coded(format.key_type) ? origin->data() : nullptr};
}

void PageStore::quantise_values_in_place(const LayerFormat& layer, const TablePage& page, PageKind kind,
                                         std::int32_t n) {
  const PageFormat &from = layer.of(page.kind), &to = layer.of(kind);
  if (!is_host_) {
    const auto n_rows = static_cast<std::size_t>(n);
    std::vector<std::byte> values(n_rows * from.value_bytes), quantised(n_rows * to.value_bytes);
    memory().read(values.data(), slot(from, page.id, 0).value, values.size());
    for (std::size_t i = 0; i < n_rows; ++i) {
      kernels::convert_row(from.value_type, to.value_type, values.data() + i * from.value_bytes,
                           quantised.data() + i * to.value_bytes, layer.value_dim);
    }
    memory().write(slot(to, page.id, 0).value, quantised.data(), quantised.size());
    return;
  }
  // Every part begins where it did or lower, so in ascending order each is read before it is overwritten.
  std::byte value[kernels::kMaxHeadDim * sizeof(float)];
  for (std::int32_t i = 0; i < n; ++i) {
    kernels::convert_row(from.value_type, to.value_type, slot(from, page.id, i).value, value, layer.value_dim);
    std::memcpy(slot(to, page.id, i).value, value, to.value_bytes);
  }
  std::memmove(slot(to, page.id, 0).offset, slot(from, page.id, 0).offset,
               static_cast<std::size_t>(n) * kernels::kPositionBytes);
}

PageStore::Transaction::Transaction(PageStore& store, const LayerFormat& format, std::size_t head,
                                    const HeadPages& table, HeadPlan& plan, const kernels::HeadEntries& source)
    : store_(store), format_(format), head_(head), table_(table), plan_(plan), source_(source) {
  acquire_fresh_pages();
  origin_ = plan.origin_from.is_empty() ? store.heads_[head].origin : mean_key();
  bool has_outside = false, converts_keys = false;
  std::size_t n_row_bytes = 0;
  for (const EntryMove& move : plan.moves) {
    has_outside |= is_outside(move);
    converts_keys |= format.of(move.from_kind).key_type != format.of(move.to_kind).key_type;
    n_row_bytes += move.n * format.of(move.from_kind).row_bytes();
  }
  if (has_outside || converts_keys) {
    keys_.emplace(store.heads_[head].feedback.get(), origin_ ? origin_->data() : nullptr, format.key_dim);
  }
  if (has_outside) {
    keys_->reserve_for(source);
    prepare_source();
  }
  if (!store.is_host()) {
    list_copies();
  } else if (plan.order == HeadPlan::Order::kReadFirst) {
    rows_.resize(n_row_bytes);
  }
}

// Returns the mean of the source's keys that the plan names.
PageStore::Origin PageStore::Transaction::mean_key() const {
  const HeadPlan::Range& range = plan_.origin_from;
  const Origin& offered = store_.heads_[head_].offered;
  if (offered && range.first == kPlainEntries && range.last == source_.n_entries) return offered;
  auto mean = std::make_shared<std::vector<std::byte>>(row_bytes(EntryType::kF16, format_.key_dim));
  const EntryCopies keys = EntryCopies::of_keys(store_.pool()->memory(), source_, format_.key_dim, format_.value_dim,
                                                range.first, range.last);
  kernels::store_mean_key(keys.entries(), format_.key_dim, 0, range.last - range.first, mean->data());
  return mean;
}

void PageStore::Transaction::prepare_source() {
  source_ends_.reserve(source_.runs.size());
  for (const kernels::EntryRun& run : source_.runs) {
    source_ends_.push_back((source_ends_.empty() ? 0 : source_ends_.back()) + run.n_entries);
  }
}

// Adds a copy to the list, or makes the copy at `last` longer if the two are of neighbours to neighbours.
void PageStore::Transaction::add_copy(std::size_t& last, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (last < copies_.size()) {
    ByteCopy& before = copies_[last];
    if (before.to + before.bytes == to && before.from + before.bytes == from) {
      before.bytes += bytes;
      return;
    }
  }
  last = copies_.size();
  copies_.push_back({.to = to, .from = from, .bytes = bytes});
}

// Makes one list for the whole plan. Moves of neighbours to neighbours become one copy, even if they are read from runs
// of one entry or are listed page by page.
void PageStore::Transaction::list_copies() {
  std::size_t last_key = 0, last_value = 0;  // places in the list
  std::vector<Conversion> conversions;
  std::size_t i = 0;  // index of the change
  for (const EntryMove& move : plan_.moves) {
    while (plan_.changes[i].page != static_cast<std::size_t>(move.to_page)) ++i;
    const PageChange& change = plan_.changes[i];
    const bool is_fresh = !fresh_.empty() && fresh_[i];
    const PageFormat& to = format_.of(move.to_kind);
    PageSlot target = store_.slot(to, is_fresh ? fresh_[i].id() : table_.pages[change.page].id, move.to_slot);
    Rows rows{};
    if (!is_outside(move)) {
      const PageFormat& from = format_.of(move.from_kind);
      const PageId from_page = table_.pages[static_cast<std::size_t>(move.from_page)].id;
      const PageSlot source = store_.slot(from, from_page, move.from_slot);
      rows = rows_at(from, source.key, source.value);
      if (is_plain(rows, to)) {
        add_copy(last_key, target.key, source.key, move.n * to.key_bytes);
        add_copy(last_value, target.value, source.value, move.n * to.value_bytes);
        continue;
      }
    }
    for (std::int32_t entry = 0; entry < move.n; ++entry) {
      if (is_outside(move)) rows = outside_rows(move.from_slot + entry);
      if (is_plain(rows, to)) {
        add_copy(last_key, target.key, rows.key, to.key_bytes);
        add_copy(last_value, target.value, rows.value, to.value_bytes);
      } else {
        conversions.push_back({.from = rows, .to = &to, .key = target.key, .value = target.value});
      }
      rows.key += rows.key_bytes;
      rows.value += rows.value_bytes;
      target.key += to.key_bytes;
      target.value += to.value_bytes;
    }
  }
  if (!conversions.empty()) convert(std::move(conversions));
}

// Converts the rows on the processor, brings them to the device and lists the copies to their places. All keys come
// before all values, so that neighbours stay neighbours.
void PageStore::Transaction::convert(std::vector<Conversion> conversions) {
  MemoryParts parts;
  std::size_t n_to = 0;
  for (const Conversion& each : conversions) parts.add(each.from.key, each.from.key_bytes);
  for (const Conversion& each : conversions) parts.add(each.from.value, each.from.value_bytes);
  for (const Conversion& each : conversions) n_to += each.to->row_bytes();
  std::vector<std::byte> from(parts.bytes()), to(n_to);
  parts.read(store_.pool()->memory(), from.data());

  const std::byte *next_key = from.data(), *next_value = from.data();
  std::byte *to_key = to.data(), *to_value = to.data();
  for (const Conversion& each : conversions) {
    next_value += each.from.key_bytes;
    to_value += each.to->key_bytes;
  }
  converted_ = MemoryBlock(store_.pool()->memory(), n_to);
  copies_.reserve(copies_.size() + 2 * conversions.size());
  std::size_t last_key = SIZE_MAX, last_value = SIZE_MAX;
  for (Conversion& each : conversions) {
    each.from.key = std::exchange(next_key, next_key + each.from.key_bytes);
    each.from.value = std::exchange(next_value, next_value + each.from.value_bytes);
    write(each.from, *each.to, {.key = to_key, .value = to_value, .offset = nullptr});
    add_copy(last_key, each.key, converted_.data() + (to_key - to.data()), each.to->key_bytes);
    add_copy(last_value, each.value, converted_.data() + (to_value - to.data()), each.to->value_bytes);
    to_key += each.to->key_bytes;
    to_value += each.to->value_bytes;
  }
  if (keys_) keys_->flush();
  store_.memory().write(converted_.data(), to.data(), to.size());
}

// Acquires added pages first: if that fails, the pool has not been asked for copies of existing ones. A device's pages
// that a plan can do without are acquired last, since copies to them are listed beforehand.
void PageStore::Transaction::acquire_fresh_pages() {
  const auto acquire = [&](std::size_t i) {
    fresh_.resize(plan_.changes.size());
    fresh_[i] = store_.acquire(format_.of(plan_.changes[i].kind));
  };
  for (const bool is_added : {true, false}) {
    for (std::size_t i = 0; i < plan_.changes.size(); ++i) {
      const PageChange& change = plan_.changes[i];
      if (change.memory != PageChange::Memory::kFresh) continue;
      if ((change.page >= table_.pages.size()) == is_added) acquire(i);
    }
  }
  if (store_.is_host()) return;
  for (std::size_t i = 0; i < plan_.changes.size(); ++i) {
    if (plan_.changes[i].memory == PageChange::Memory::kFreshIfThere) has_memory_for([&] { acquire(i); });
  }
}

void PageStore::Transaction::carry_out() noexcept {
  if (!store_.is_host()) {
    // EntryMemory::copy reads all sources first, which suits both orders.
    if (!copies_.empty()) store_.memory().copy(copies_);
    take_pages(/*releases_old=*/false);
    // In the other order, the plan places every position on the pages that it changes.
    if (plan_.order == HeadPlan::Order::kAsListed) move_offsets();
    release_replaced();
    release_rest();
  } else if (plan_.order == HeadPlan::Order::kReadFirst) {
    read_sources();
    release_rest();
    take_pages(/*releases_old=*/true);
    write_targets();
  } else {
    take_pages(/*releases_old=*/false);
    move();
    release_replaced();
    release_rest();
  }
  place();
  if (keys_) keys_->flush();
  store_.heads_[head_].origin = plan_.has_origin ? std::move(origin_) : nullptr;
  store_.heads_[head_].offered = nullptr;
}

void PageStore::Transaction::take_pages(bool releases_old) noexcept {
  for (std::size_t i = 0; i < plan_.changes.size(); ++i) {
    PageChange& change = plan_.changes[i];
    const TablePage* old = change.page < table_.pages.size() ? &table_.pages[change.page] : nullptr;
    if (!fresh_.empty() && fresh_[i]) {
      change.id = fresh_[i].detach();
    } else {
      change.id = old->id;
      if (change.memory == PageChange::Memory::kFreshIfThere && store_.is_host()) {
        has_memory_for([&] { change.id = store_.acquire(format_.of(change.kind)).detach(); });
      }
    }
    if (releases_old && old != nullptr && change.id != old->id) store_.release(*old);
  }
}

void PageStore::Transaction::release_replaced() noexcept {
  for (const PageChange& change : plan_.changes) {
    if (change.page < std::min(table_.pages.size(), plan_.n_pages) && change.id != table_.pages[change.page].id) {
      store_.release(table_.pages[change.page]);
    }
  }
}

void PageStore::Transaction::release_rest() noexcept {
  for (std::size_t page = plan_.n_pages; page < table_.pages.size(); ++page) store_.release(table_.pages[page]);
}

const std::byte* PageStore::Transaction::origin_of(EntryType key_type) const {
  return origin_ && kernels::is_coded(key_type) ? origin_->data() : nullptr;
}

PageStore::Transaction::Rows PageStore::Transaction::rows_at(const PageFormat& format, const std::byte* key,
                                                             const std::byte* value) const {
  return {.key_type = format.key_type,
          .value_type = format.value_type,
          .key_bytes = format.key_bytes,
          .value_bytes = format.value_bytes,
          .key_origin = origin_of(format.key_type),
          .key = key,
          .value = value};
}

// Searches the runs only if the index is outside the last one: neighbours are usually in the same run.
PageStore::Transaction::Rows PageStore::Transaction::outside_rows(std::int32_t index) {
  const auto begin = [&] { return source_run_ == 0 ? 0 : source_ends_[source_run_ - 1]; };
  if (index >= source_ends_[source_run_] || index < begin()) {
    source_run_ = static_cast<std::size_t>(std::upper_bound(source_ends_.begin(), source_ends_.end(), index) -
                                           source_ends_.begin());
  }
  const kernels::EntryRun& run = source_.runs[source_run_];
  const auto i = static_cast<std::size_t>(index - begin());
  const std::size_t key_bytes = row_bytes(run.key_type, format_.key_dim);
  const std::size_t value_bytes = row_bytes(run.value_type, format_.value_dim);
  return {.key_type = run.key_type,
          .value_type = run.value_type,
          .key_bytes = key_bytes,
          .value_bytes = value_bytes,
          .key_origin = run.origin,
          .key = run.keys + i * key_bytes,
          .value = run.values + i * value_bytes};
}

bool PageStore::Transaction::is_plain(const Rows& from, const PageFormat& to) const {
  return from.key_type == to.key_type && from.key_origin == origin_of(to.key_type) && from.value_type == to.value_type;
}

void PageStore::Transaction::write(const Rows& from, const PageFormat& to, const PageSlot& target) noexcept {
  // Rows that are only moved, as most of a cascade's, are copied by their known sizes: a conversion computes the sizes
  // of every row.
  if (from.key_type == to.key_type && from.key_origin == origin_of(to.key_type)) {
    std::memcpy(target.key, from.key, from.key_bytes);
  } else {
    keys_->write(from.key_type, from.key_origin, to.key_type, from.key, target.key);
  }
  if (from.value_type == to.value_type) {
    std::memcpy(target.value, from.value, from.value_bytes);
  } else {
    kernels::convert_row(from.value_type, to.value_type, from.value, target.value, format_.value_dim);
  }
}

void PageStore::Transaction::move() noexcept {
  auto change = plan_.changes.begin();
  for (const EntryMove& move : plan_.moves) {
    while (change->page != static_cast<std::size_t>(move.to_page)) ++change;
    const PageFormat& to = format_.of(move.to_kind);
    if (is_outside(move)) {
      for (std::int32_t i = 0; i < move.n; ++i) {
        write(outside_rows(move.from_slot + i), to, store_.slot(to, change->id, move.to_slot + i));
      }
      continue;
    }
    const PageFormat& from = format_.of(move.from_kind);
    const PageId from_page = table_.pages[static_cast<std::size_t>(move.from_page)].id;
    const PageSlot source = store_.slot(from, from_page, move.from_slot);
    const PageSlot target = store_.slot(to, change->id, move.to_slot);
    const auto n = static_cast<std::size_t>(move.n);
    if (move.from_kind == move.to_kind) {
      std::memmove(target.key, source.key, n * to.key_bytes);
      std::memmove(target.value, source.value, n * to.value_bytes);
    } else {
      for (std::size_t i = 0; i < n; ++i) {
        write(rows_at(from, source.key + i * from.key_bytes, source.value + i * from.value_bytes), to,
              {target.key + i * to.key_bytes, target.value + i * to.value_bytes, nullptr});
      }
    }
    std::memmove(target.offset, source.offset, n * kernels::kPositionBytes);
  }
}

void PageStore::Transaction::move_offsets() noexcept {
  auto change = plan_.changes.begin();
  for (const EntryMove& move : plan_.moves) {
    while (change->page != static_cast<std::size_t>(move.to_page)) ++change;
    if (is_outside(move)) continue;
    const PageId from_page = table_.pages[static_cast<std::size_t>(move.from_page)].id;
    std::memmove(store_.slot(format_.of(move.to_kind), change->id, move.to_slot).offset,
                 store_.slot(format_.of(move.from_kind), from_page, move.from_slot).offset,
                 static_cast<std::size_t>(move.n) * kernels::kPositionBytes);
  }
}

void PageStore::Transaction::read_sources() noexcept {
  std::byte* next = rows_.data();
  for (const EntryMove& move : plan_.moves) {
    const PageFormat& from = format_.of(move.from_kind);
    const PageSlot source =
        store_.slot(from, table_.pages[static_cast<std::size_t>(move.from_page)].id, move.from_slot);
    const auto n = static_cast<std::size_t>(move.n);
    std::memcpy(next, source.key, n * from.key_bytes);
    std::memcpy(next + n * from.key_bytes, source.value, n * from.value_bytes);
    next += n * from.row_bytes();
  }
}

void PageStore::Transaction::write_targets() noexcept {
  const std::byte* next = rows_.data();
  auto change = plan_.changes.begin();
  for (const EntryMove& move : plan_.moves) {
    while (change->page != static_cast<std::size_t>(move.to_page)) ++change;
    const PageFormat &from = format_.of(move.from_kind), &to = format_.of(move.to_kind);
    const auto n = static_cast<std::size_t>(move.n);
    const std::byte* values = next + n * from.key_bytes;
    for (std::size_t i = 0; i < n; ++i) {
      write(rows_at(from, next + i * from.key_bytes, values + i * from.value_bytes), to,
            store_.slot(to, change->id, move.to_slot + static_cast<std::int32_t>(i)));
    }
    next += n * from.row_bytes();
  }
}

void PageStore::Transaction::place() noexcept {
  const std::int32_t* position = plan_.positions.data();
  for (const PageChange& change : plan_.changes) {
    if (change.n_placed == 0) continue;
    std::uint16_t* offsets = store_.slot(format_.of(change.kind), change.id, change.first_placed).offset;
    for (std::int32_t i = 0; i < change.n_placed; ++i) {
      const std::int32_t offset = *position++ - change.positions.origin;
      if (offset < kOffsets) offsets[i] = static_cast<std::uint16_t>(offset);
    }
  }
}

}  // namespace winnow
