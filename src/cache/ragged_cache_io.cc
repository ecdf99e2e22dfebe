// RaggedCache::write and restore. The file's integrity (magic, checksum) is the caller's; these functions check every
// number before it is used and take memory only as fast as data arrives, so that an absurd count fails at the end of
// the data.
#include <algorithm>
#include <array>
#include <cmath>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cache/ragged_cache.h"
#include "kernels/entries/rows.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// n_kv_head, key_dim, value_dim, key_type, value_type.
using LayerNumbers = std::array<std::int32_t, 5>;

LayerNumbers numbers_of(const LayerShape& sizes, EntryType key_type, EntryType value_type) {
  return {sizes.n_kv_head, sizes.key_dim, sizes.value_dim, static_cast<std::int32_t>(key_type),
          static_cast<std::int32_t>(value_type)};
}

std::string type_name(std::int32_t type) {
  const bool is_known = type >= 0 && type <= static_cast<std::int32_t>(EntryType::kR3);
  return is_known ? std::string(entry_type_name(static_cast<EntryType>(type))) : "type " + std::to_string(type);
}

std::string describe(const LayerNumbers& layer) {
  const std::string values = layer[2] == layer[1] ? "" : " and " + std::to_string(layer[2]);
  return std::to_string(layer[0]) + " KV heads of " + std::to_string(layer[1]) + values + ", keys " +
         type_name(layer[3]) + ", values " + type_name(layer[4]);
}

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::kBadFile, "the stored cache " + what); }

// The kinds of stored pages, as a file numbers them, and of what precedes a head's first page as a page without
// entries.
enum Stored : std::int32_t { kStoredCut, kStoredPlain, kStoredHigh, kStoredLater, kStoredOrigin, kStoredRaised };

void write_bytes(std::ostream& out, const void* data, std::size_t bytes) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

void read_bytes(std::istream& in, void* data, std::size_t bytes) {
  in.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
  if (!in) fail("ends too early: the file is truncated or corrupt, save the session again");
}

PageStore::Origin read_origin(std::istream& in, int key_dim) {
  std::vector<std::byte> origin(row_bytes(EntryType::kF16, key_dim));
  read_bytes(in, origin.data(), origin.size());
  std::vector<float> numbers(static_cast<std::size_t>(key_dim));
  kernels::load_row(EntryType::kF16, origin.data(), numbers.data(), key_dim);
  if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) {
    fail("has a key origin that is not finite: the file is corrupt, save the session again");
  }
  return std::make_shared<const std::vector<std::byte>>(std::move(origin));
}

}  // namespace

void RaggedCache::write(std::ostream& out, int layer) const {
  const bool has_heads = shape_.layer(layer).n_kv_head > 0;
  const LayerFormat& format = table_.layer(layer);
  const PageFormat& quantised = format.of(PageKind::kQuantised);
  const LayerNumbers numbers = numbers_of(shape_.layer(layer), has_heads ? quantised.key_type : shape_.key_type,
                                          has_heads ? quantised.value_type : shape_.value_type);
  write_bytes(out, numbers.data(), sizeof(numbers));
  std::vector<std::byte> rows;  // a page's rows, if they are on a device
  for (int kv_head = 0; kv_head < shape_.layer(layer).n_kv_head; ++kv_head) {
    const HeadPages& h = head(layer, kv_head);
    write_bytes(out, &h.n_entries, sizeof(h.n_entries));
    if (const PageStore::Origin& origin = store_.origin(index(layer, kv_head))) {
      const std::int32_t of_origin[] = {0, kStoredOrigin};
      write_bytes(out, of_origin, sizeof(of_origin));
      write_bytes(out, origin->data(), origin->size());
    }
    if (h.is_raised && h.n_entries > 0) {
      const std::int32_t of_raised[] = {0, kStoredRaised};
      write_bytes(out, of_raised, sizeof(of_raised));
    }
    for (std::size_t page = 0; page < h.pages.size(); ++page) {
      const kernels::EntryRun& run = runs_[index(layer, kv_head)][page];
      const PageKind kind = h.pages[page].kind;
      const auto n = static_cast<std::size_t>(run.n_entries);
      const Stored stored = kind == PageKind::kFloat      ? kStoredPlain
                            : kind == PageKind::kHigh     ? kStoredHigh
                            : kind == PageKind::kAfterCut ? kStoredLater
                                                          : kStoredCut;
      const std::int32_t of_page[] = {run.n_entries, stored};
      write_bytes(out, of_page, sizeof(of_page));
      std::int32_t positions[kPageEntries];
      for (std::int32_t i = 0; i < run.n_entries; ++i) positions[i] = run.positions[i];
      write_bytes(out, positions, n * sizeof(std::int32_t));
      const std::byte *keys = run.keys, *values = run.values;
      if (!store_.is_host()) {
        const auto values_at = static_cast<std::size_t>(values - keys);
        rows.resize(values_at + n * format.of(kind).value_bytes);
        memory().read(rows.data(), keys, rows.size());
        keys = rows.data();
        values = keys + values_at;
      }
      write_bytes(out, keys, n * format.of(kind).key_bytes);
      write_bytes(out, values, n * format.of(kind).value_bytes);
    }
  }
  if (!out) throw Error(ErrorCode::kIo, "the session could not be written: check the free space of the disk");
}

void RaggedCache::restore(std::istream& in, int layer) {
  try {
    LayerNumbers found{};
    read_bytes(in, found.data(), sizeof(found));
    const LayerShape& sizes = shape_.layer(layer);
    const LayerNumbers expected = sizes.n_kv_head > 0
                                      ? numbers_of(sizes, shape_.key_type_of(layer), shape_.value_type_of(layer))
                                      : numbers_of(sizes, shape_.key_type, shape_.value_type);
    // Session files before version 7 stored windows in the types of the entries that a cut keeps.
    const bool is_old_window =
        shape_.holds_later(layer) && found == numbers_of(sizes, shape_.key_type, shape_.value_type);
    if (is_old_window) {
      table_.set_window_types(layer, shape_.key_type, shape_.value_type);
    } else if (found != expected) {
      fail("has " + describe(found) + " in layer " + std::to_string(layer) + ", but this session has " +
           describe(expected) + ": load it with the model and the cache types that it was saved with");
    }
    for (int h = 0; h < shape_.layer(layer).n_kv_head; ++h) {
      clear(layer, h);
      restore_head(layer, h, in);
    }
  } catch (...) {
    clear();
    throw;
  }
}

// Reads what precedes a head's pages and each page's header, and checks every number by the pages that the head has.
class RaggedCache::HeadReader {
 public:
  // A page, whose rows are next in the file.
  struct Page {
    Stored stored;
    std::vector<std::int32_t> positions;
  };

  HeadReader(std::istream& in, const CacheShape& shape, const LayerFormat& format, const HeadPages& pages)
      : in_(in), shape_(shape), format_(format), head_(pages) {
    read_bytes(in_, &count_, sizeof(count_));
    if (count_ < 0) {
      fail("has a head of " + std::to_string(count_) + " entries: the file is corrupt, save the session again");
    }
  }

  bool is_through() const { return head_.n_entries >= count_; }
  PageStore::Origin take_origin() { return std::exchange(origin_, nullptr); }
  // Returns whether the head is one that takes more bits. Its pages have the kinds that they were stored in all the
  // same.
  bool is_raised() const { return is_raised_; }

  // Returns the next page, or nullopt if what came was something of the head's: its origin, or that it is raised.
  std::optional<Page> read() {
    std::int32_t numbers[2];
    read_bytes(in_, numbers, sizeof(numbers));
    const auto [n, stored] = numbers;
    if (n == 0 && head_.n_entries == 0 && read_mark(stored)) return std::nullopt;
    const bool is_later = stored == kStoredLater;
    if (n < 1 || n > std::min(kPageEntries, count_ - head_.n_entries) || stored < kStoredCut || stored > kStoredLater ||
        (is_later && (format_.after_cut != PageKind::kAfterCut || n_pages() == 0))) {
      refuse_page();
    }
    // Pages in more bits are full and follow the first page.
    if (stored == kStoredHigh &&
        (!shape_.high || !format_.has_sink_page() || n != kPageEntries || n_pages() != head_.n_high_pages + 1)) {
      refuse_page();
    }
    Page page{.stored = static_cast<Stored>(stored),
              .positions = std::vector<std::int32_t>(static_cast<std::size_t>(n))};
    read_bytes(in_, page.positions.data(), page.positions.size() * sizeof(std::int32_t));
    check_positions(page);
    check_slots(page);
    return page;
  }

 private:
  std::size_t n_pages() const { return head_.pages.size(); }
  [[noreturn]] static void refuse_page() {
    fail("has an impossible page: the file is corrupt, save the session again");
  }

  bool read_mark(std::int32_t stored) {
    if (stored == kStoredOrigin && !head_.has_origin && !origin_ && format_.has_quantised_keys(PageKind::kQuantised)) {
      origin_ = read_origin(in_, format_.key_dim);
      return true;
    }
    if (stored != kStoredRaised || is_raised_ || !format_.raises(true)) return false;
    is_raised_ = true;
    return true;
  }

  // Positions of pages in more bits ascend among themselves, and so do the others. Both begin after the first page's.
  void check_positions(const Page& page) {
    std::int32_t& last = page.stored == kStoredHigh ? last_high_ : last_position_;
    for (const std::int32_t position : page.positions) {
      if (position <= last) fail("has positions out of order: the file is corrupt, save the session again");
      last = position;
    }
    if (n_pages() == 0) last_high_ = last_position_;
  }

  // Only a head's first page has free slots before its entries, and only its last one behind them.
  void check_slots(const Page& page) const {
    const auto n = static_cast<std::int32_t>(page.positions.size());
    const std::int32_t end = n + (head_.n_entries == 0 ? format_.skipped(page.positions[0]) : 0);
    const bool is_last = head_.n_entries + n == count_;
    if (end > kPageEntries || (!is_last && end != kPageEntries) ||
        (page.stored == kStoredPlain && format_.incoming(n_pages()) != PageKind::kFloat)) {
      refuse_page();
    }
  }

  std::istream& in_;
  const CacheShape& shape_;
  const LayerFormat& format_;
  const HeadPages& head_;  // as far as it has been restored
  std::int32_t count_ = 0;
  std::int32_t last_position_ = -1, last_high_ = -1;
  PageStore::Origin origin_;
  bool is_raised_ = false;
};

void RaggedCache::restore_head(int layer, int kv_head, std::istream& in) {
  const HeadPages& h = head(layer, kv_head);
  HeadReader reader(in, shape_, table_.layer(layer), h);
  while (!reader.is_through()) {
    // A page is acquired after its positions have been read and before its rows are.
    if (const auto page = reader.read()) {
      restore_page(layer, kv_head, page->stored, page->positions, in);
    } else if (PageStore::Origin origin = reader.take_origin()) {
      store_.set_origin(index(layer, kv_head), std::move(origin));
      table_.set_origin(layer, kv_head, true);
    }
  }
  table_.set_raised(layer, kv_head, reader.is_raised());  // at the end: until then pages are of the kind in the file
  if (h.n_high_pages == 0) return;
  std::int32_t last = -1;
  for (const std::int32_t entry : PageTable::by_position(h, entries(layer, kv_head))) {
    const std::size_t page = h.page_of_entry(entry);
    const std::int32_t position =
        runs_[index(layer, kv_head)][page].positions[h.slot_of_entry(entry) - h.first_slot(page)];
    if (position <= last) fail("has a position twice: the file is corrupt, save the session again");
    last = position;
  }
}

void RaggedCache::restore_page(int layer, int kv_head, std::int32_t stored, const std::vector<std::int32_t>& positions,
                               std::istream& in) {
  const HeadPages& h = head(layer, kv_head);
  const std::size_t page = h.pages.size(), n = positions.size();
  const std::int32_t first = h.n_entries;
  const kernels::HeadEntries own = entries(layer, kv_head);
  const AppendedAs as = stored == kStoredPlain   ? AppendedAs::kIncoming
                        : stored == kStoredLater ? AppendedAs::kAfterCut
                                                 : AppendedAs::kCut;
  const std::size_t n_high_pages = h.n_high_pages + (stored == kStoredHigh ? 1 : 0);
  apply(layer, kv_head, table_.plan_append(layer, kv_head, positions, as, n_high_pages, own, is_shared()), own);
  const PageSlot target = writable_slot(layer, kv_head, first);
  const PageFormat& format = table_.layer(layer).of(h.pages[page].kind);
  std::byte *keys = target.key, *values = target.value;
  std::vector<std::byte> rows;  // on their way to a device
  if (!store_.is_host()) {
    const auto values_at = static_cast<std::size_t>(values - keys);
    rows.resize(values_at + n * format.value_bytes);
    keys = rows.data();
    values = keys + values_at;
  }
  read_bytes(in, keys, n * format.key_bytes);
  read_bytes(in, values, n * format.value_bytes);
  if (!store_.is_host()) memory().write(target.key, rows.data(), rows.size());
}

}  // namespace winnow
