// Page tables alone, without a byte of memory for pages: random changes of a family of forked tables, each mirrored in
// plain lists. Slots hold the names of entries, and plans are carried out on these names one move after the other, as
// strictly as on bytes.
#include "cache/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_test_support.h"

namespace winnow {
namespace {

struct Named {
  std::int32_t name;
  std::int32_t position;
  bool operator==(const Named&) const = default;
};

// A page that holds names instead of rows.
struct NamedPage {
  int n_references = 1;
  std::array<std::int32_t, kPageEntries> names{};
  std::array<std::uint16_t, kPageEntries> offsets{};
};

class NamedPages {
 public:
  PageId acquire() {
    const PageId id{next_++};
    pages_.try_emplace(id);
    return id;
  }
  void release(PageId id) {
    if (--pages_.at(id).n_references == 0) pages_.erase(id);
  }
  NamedPage& at(PageId id) { return pages_.at(id); }
  std::size_t size() const { return pages_.size(); }
  bool is_shared(PageId id) const { return pages_.at(id).n_references > 1; }

 private:
  std::map<PageId, NamedPage> pages_;
  std::uint32_t next_ = 0;
};

// Entries of every head of a table, in ascending position.
struct Sequence {
  PageTable table;
  std::vector<std::vector<Named>> entries;  // [heads]
  std::int32_t next_position = 0;
};

struct Case {
  const char* name;
  CacheShape shape;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  const CacheShape f16 = even_shape(2, 2, 64);
  CacheShape windows = f16;
  windows.layers[1].sliding_window = 50;
  const CacheShape quantised = even_shape(2, 2, 64, EntryType::kR4, EntryType::kR3);
  CacheShape high = quantised;
  high.high = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kQ8_0, .fraction = 0.3};
  CacheShape after_cut = high;
  after_cut.later = {.key_type = EntryType::kQ8_0, .value_type = EntryType::kR4};
  after_cut.layers[1].sliding_window = 50;
  return {{"F16", f16}, {"Windows", windows}, {"Quantised", quantised}, {"High", high}, {"AfterCut", after_cut}};
}

class PageTableTest : public testing::TestWithParam<Case> {
 protected:
  PageTableTest() {
    sequences_.reserve(6);  // tests keep references to them
    sequences_.push_back({PageTable(shape_), std::vector<std::vector<Named>>(4), 0});
  }

  std::int32_t below(std::size_t n) { return static_cast<std::int32_t>(random_() % n); }
  IsShared is_shared() {
    return [this](PageId id) { return pages_.is_shared(id); };
  }

  // Returns the head's runs as the table needs them: with positions and without rows.
  std::vector<kernels::EntryRun> runs_of(const HeadPages& head) {
    std::vector<kernels::EntryRun> runs;
    for (std::size_t page = 0; page < head.pages.size(); ++page) {
      const PagePositions& positions = head.pages[page].positions;
      const std::int32_t first = head.first_slot(page);
      runs.push_back({.keys = nullptr,
                      .values = nullptr,
                      .positions = positions.far
                                       ? kernels::EntryPositions(positions.far->data() + first)
                                       : kernels::EntryPositions(positions.origin,
                                                                 pages_.at(head.pages[page].id).offsets.data() + first),
                      .n_entries = head.entries_on(page)});
    }
    return runs;
  }

  struct Place {
    PageId page;
    std::int32_t slot;
    auto operator<=>(const Place&) const = default;
  };

  // Gives pages to the changes, as a store does. About half of the optional pages are available.
  void take_pages(const HeadPages& head, HeadPlan& plan) {
    for (PageChange& change : plan.changes) {
      const bool is_fresh = change.memory == PageChange::Memory::kFresh ||
                            (change.memory == PageChange::Memory::kFreshIfThere && below(2) == 0);
      change.id = is_fresh ? pages_.acquire() : head.pages.at(change.page).id;
      const bool is_written = change.n_placed > 0 || change.memory != PageChange::Memory::kSame;
      EXPECT_FALSE(is_written && pages_.is_shared(change.id)) << "a page that a fork holds";
    }
  }

  // Moves names as a store moves bytes.
  void carry_out(const LayerFormat& format, const HeadPages& head, HeadPlan& plan, const std::vector<Named>& outside) {
    take_pages(head, plan);
    std::map<std::size_t, const PageChange*> changes;
    for (const PageChange& change : plan.changes) {
      ASSERT_TRUE(changes.empty() || changes.rbegin()->first < change.page) << "changes that do not ascend";
      ASSERT_LT(change.page, plan.n_pages);
      changes[change.page] = &change;
    }
    const bool reads_first = plan.order == HeadPlan::Order::kReadFirst;
    std::set<Place> written;
    std::vector<std::pair<Place, Named>> waiting;  // target, name and offset
    for (const EntryMove& move : plan.moves) {
      ASSERT_GT(move.n, 0);
      ASSERT_TRUE(changes.contains(static_cast<std::size_t>(move.to_page))) << "a move to a page that does not change";
      const PageChange& target = *changes.at(static_cast<std::size_t>(move.to_page));
      ASSERT_EQ(move.to_kind, target.kind);
      ASSERT_GE(move.to_slot, format.of(move.to_kind).first_slot);
      ASSERT_LE(move.to_slot + move.n, kPageEntries);
      std::vector<Named> moved;  // with its offset as position
      for (std::int32_t i = 0; i < move.n; ++i) {
        if (move.from_page == EntryMove::kOutside) {
          moved.push_back({outside.at(static_cast<std::size_t>(move.from_slot + i)).name, 0});
          continue;
        }
        const TablePage& page = head.pages.at(static_cast<std::size_t>(move.from_page));
        ASSERT_EQ(move.from_kind, page.kind);
        ASSERT_LT(move.from_slot + i, kPageEntries);
        ASSERT_TRUE(reads_first || !written.contains({page.id, move.from_slot + i})) << "a source that is gone";
        const auto slot = static_cast<std::size_t>(move.from_slot + i);
        moved.push_back({pages_.at(page.id).names.at(slot), pages_.at(page.id).offsets.at(slot)});
      }
      for (std::int32_t i = 0; i < move.n; ++i) {
        const Place place = {target.id, move.to_slot + i};
        ASSERT_TRUE(written.insert(place).second) << "a slot that is written twice";
        waiting.emplace_back(place, moved[static_cast<std::size_t>(i)]);
      }
      if (!reads_first) write(waiting);
    }
    write(waiting);
    std::size_t next = 0;
    for (const PageChange& change : plan.changes) {
      for (std::int32_t i = 0; i < change.n_placed; ++i) {
        const std::int32_t offset = plan.positions.at(next++) - change.positions.origin;
        ASSERT_GE(offset, 0);
        if (offset >= kOffsets) continue;
        pages_.at(change.id).offsets.at(static_cast<std::size_t>(change.first_placed + i)) =
            static_cast<std::uint16_t>(offset);
      }
    }
    ASSERT_EQ(next, plan.positions.size());
  }

  void write(std::vector<std::pair<Place, Named>>& waiting) {
    for (const auto& [place, named] : waiting) {
      pages_.at(place.page).names.at(static_cast<std::size_t>(place.slot)) = named.name;
      pages_.at(place.page).offsets.at(static_cast<std::size_t>(place.slot)) =
          static_cast<std::uint16_t>(named.position);
    }
    waiting.clear();
  }

  void apply(Sequence& s, int layer, int kv_head, HeadPlan plan, const std::vector<Named>& outside = {}) {
    const HeadPages before = s.table.head(layer, kv_head);
    if (!plan.origin_from.is_empty()) {
      EXPECT_FALSE(before.has_origin || s.table.has_quantised_keys(layer, kv_head)) << "an origin that moves";
    }
    ASSERT_NO_FATAL_FAILURE(carry_out(s.table.layer(layer), before, plan, outside));
    s.table.reserve(layer, kv_head, plan.n_pages);
    s.table.commit(layer, kv_head, plan);
    std::set<PageId> kept;
    for (const TablePage& page : s.table.head(layer, kv_head).pages) {
      EXPECT_TRUE(kept.insert(page.id).second) << "a page twice";
    }
    for (const TablePage& page : before.pages) {
      if (!kept.contains(page.id)) pages_.release(page.id);
    }
  }

  std::vector<Named>& entries_of(Sequence& s, int layer, int kv_head) {
    return s.entries[static_cast<std::size_t>(2 * layer + kv_head)];
  }

  // Names the last n entries, which were appended without contents.
  void name_last(Sequence& s, int layer, int kv_head, std::int32_t n) {
    const HeadPages& head = s.table.head(layer, kv_head);
    std::vector<Named>& entries = entries_of(s, layer, kv_head);
    for (std::int32_t entry = head.n_entries - n; entry < head.n_entries; ++entry) {
      const PageId page = head.pages[head.page_of_entry(entry)].id;
      ASSERT_FALSE(pages_.is_shared(page));
      pages_.at(page).names.at(static_cast<std::size_t>(head.slot_of_entry(entry))) = next_name_;
      entries.push_back({next_name_++, s.next_position + entry - (head.n_entries - n)});
    }
  }

  // Expects that entries which only fill up an unshared page need no plan: it would write their offsets only.
  void expect_short_way(const PageTable& table, int layer, int kv_head, const HeadPlan& plan, std::int32_t n,
                        std::int32_t first_position) {
    const HeadPages& head = table.head(layer, kv_head);
    const bool is_short =
        table.fills_last_page(layer, kv_head, n, first_position) && !pages_.is_shared(head.pages.back().id);
    const bool is_same = plan.n_pages == head.pages.size() && plan.moves.empty() && plan.changes.size() == 1 &&
                         plan.changes[0].memory == PageChange::Memory::kSame && !plan.changes[0].positions.far;
    EXPECT_EQ(is_short, is_same);
  }

  void append(Sequence& s) {
    const bool has_window = shape_.layer(1).sliding_window > 0;  // windows need consecutive positions
    if (!has_window && below(6) == 0) s.next_position += below(200'000);
    const std::int32_t n = 1 + (below(4) == 0 ? below(100) : below(3));
    for (int head = 0; head < 4; ++head) {
      const std::vector<kernels::EntryRun> runs = runs_of(s.table.head(head / 2, head % 2));
      std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
      std::iota(positions.begin(), positions.end(), s.next_position);
      const HeadPlan plan = s.table.plan_append(head / 2, head % 2, positions, AppendedAs::kIncoming,
                                                s.table.head(head / 2, head % 2).n_high_pages,
                                                {.runs = runs, .n_entries = 0}, is_shared());
      expect_short_way(s.table, head / 2, head % 2, plan, n, s.next_position);
      ASSERT_NO_FATAL_FAILURE(apply(s, head / 2, head % 2, plan));
      ASSERT_NO_FATAL_FAILURE(name_last(s, head / 2, head % 2, n));
    }
    s.next_position += n;
  }

  // Returns entries of `kept` that fill whole pages, without the first entries.
  std::vector<std::int32_t> some_high(const std::vector<std::int32_t>& kept) {
    if (!shape_.high || kept.size() < kPlainEntries + kPageEntries) return {};
    std::vector<std::int32_t> high(kept.begin() + kPlainEntries, kept.end());
    std::shuffle(high.begin(), high.end(), random_);
    high.resize(random_() % (high.size() / kPageEntries + 1) * kPageEntries);
    std::sort(high.begin(), high.end());
    return high;
  }

  std::vector<std::int32_t> some(std::size_t n) {
    std::vector<std::int32_t> chosen;
    const std::int32_t percent = 25 * below(5), n_first = below(3) == 0 ? below(n + 1) : 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(n); ++i) {
      if (i < n_first || below(100) < percent) chosen.push_back(i);
    }
    return chosen;
  }

  static std::vector<Named> selected(const std::vector<Named>& entries, const std::vector<std::int32_t>& chosen) {
    std::vector<Named> result;
    for (const std::int32_t i : chosen) result.push_back(entries[static_cast<std::size_t>(i)]);
    return result;
  }

  void cut(Sequence& s, int layer, int kv_head) {
    std::vector<Named>& entries = entries_of(s, layer, kv_head);
    const HeadPages& head = s.table.head(layer, kv_head);
    const std::vector<std::int32_t> kept = some(entries.size());
    const std::vector<kernels::EntryRun> runs = runs_of(head);
    ASSERT_NO_FATAL_FAILURE(apply(s, layer, kv_head,
                                  s.table.plan_cut(layer, kv_head, kept, some_high(kept),
                                                   {.runs = runs, .n_entries = head.n_entries}, is_shared())));
    entries = selected(entries, kept);
  }

  void truncate(Sequence& s) {
    if (shape_.layer(1).sliding_window > 0) return;
    const std::int32_t position = s.next_position - below(static_cast<std::size_t>(s.next_position / 4 + 1));
    for (int head = 0; head < 4; ++head) {
      const HeadPages& table = s.table.head(head / 2, head % 2);
      const std::vector<kernels::EntryRun> runs = runs_of(table);
      ASSERT_NO_FATAL_FAILURE(apply(s, head / 2, head % 2,
                                    s.table.plan_truncate(head / 2, head % 2, position,
                                                          {.runs = runs, .n_entries = table.n_entries}, is_shared())));
      std::erase_if(entries_of(s, head / 2, head % 2), [&](const Named& entry) { return entry.position >= position; });
    }
    s.next_position = position;
  }

  // Adds a sequence of some of the entries of another.
  void copy_some(const Sequence& source) {
    Sequence copy = {PageTable(shape_), std::vector<std::vector<Named>>(4), source.next_position};
    for (int head = 0; head < 4; ++head) {
      const int layer = head / 2, kv_head = head % 2;
      const std::vector<Named>& entries = source.entries[static_cast<std::size_t>(head)];
      const bool has_window = shape_.layer(layer).sliding_window > 0;
      std::vector<std::int32_t> chosen = some(entries.size());
      if (has_window) {
        chosen.resize(entries.size());
        std::iota(chosen.begin(), chosen.end(), 0);
      }
      std::vector<std::int32_t> positions;
      for (const Named& entry : entries) positions.push_back(entry.position);
      const kernels::EntryRun run = {.keys = nullptr,
                                     .values = nullptr,
                                     .positions = positions.data(),
                                     .n_entries = static_cast<std::int32_t>(entries.size())};
      copy.table.set_raised(layer, kv_head, below(4) == 0);
      ASSERT_NO_FATAL_FAILURE(apply(
          copy, layer, kv_head,
          copy.table.plan_append_from(layer, kv_head, {.runs = {&run, 1}, .n_entries = run.n_entries}, chosen,
                                      has_window ? std::vector<std::int32_t>{} : some_high(chosen), {}, is_shared()),
          entries));
      entries_of(copy, layer, kv_head) = selected(entries, chosen);
    }
    sequences_.push_back(std::move(copy));
  }

  void settle(Sequence& s) {
    for (int head = 0; head < 4; ++head) {
      const int layer = head / 2, kv_head = head % 2;
      for (std::size_t page = 0, n = s.table.pages_before_window(layer, kv_head); page < n; ++page) {
        pages_.release(s.table.head(layer, kv_head).pages[page].id);
      }
      s.table.slide_window(layer, kv_head);
      std::vector<Named>& entries = entries_of(s, layer, kv_head);
      const std::int32_t window = shape_.layer(layer).sliding_window;
      if (window > 0 && std::ssize(entries) > window) entries.erase(entries.begin(), entries.end() - window);
      if (!shape_.has_codes()) continue;
      const auto [first, last] = s.table.full_pages_to_quantise(layer, kv_head);
      for (std::size_t page = first; page < last; ++page) {
        const std::vector<kernels::EntryRun> runs = runs_of(s.table.head(layer, kv_head));
        const kernels::HeadEntries own = {.runs = runs, .n_entries = s.table.head(layer, kv_head).n_entries};
        ASSERT_NO_FATAL_FAILURE(apply(s, layer, kv_head, s.table.plan_quantise(layer, kv_head, page, own)));
      }
      const auto [none, end] = s.table.full_pages_to_quantise(layer, kv_head);
      ASSERT_EQ(none, end);
    }
  }

  void fork(const Sequence& s) {
    for (const HeadPages& head : s.table.heads()) {
      for (const TablePage& page : head.pages) ++pages_.at(page.id).n_references;
    }
    sequences_.push_back(s);
  }

  void end(std::size_t sequence) {
    for (const HeadPages& head : sequences_[sequence].table.heads()) {
      for (const TablePage& page : head.pages) pages_.release(page.id);
    }
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(sequence));
  }

  // Expects every entry to be where the table says, every page to have as many references as holders, and the sums to
  // be right.
  void expect_whole() {
    std::map<PageId, int> held;
    for (Sequence& s : sequences_) {
      std::int64_t n_entries = 0, n_cut = 0;
      std::size_t bytes_in_pages = 0;
      std::set<PageId> own;
      for (int h = 0; h < 4; ++h) {
        const HeadPages& head = s.table.head(h / 2, h % 2);
        const std::vector<Named>& expected = s.entries[static_cast<std::size_t>(h)];
        ASSERT_EQ(head.n_entries, std::ssize(expected));
        const std::vector<kernels::EntryRun> runs = runs_of(head);
        const std::vector<std::int32_t> order =
            PageTable::by_position(head, {.runs = runs, .n_entries = head.n_entries});
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const std::size_t page = head.page_of_entry(order[i]);
          const std::int32_t slot = head.slot_of_entry(order[i]);
          ASSERT_EQ(pages_.at(head.pages[page].id).names.at(static_cast<std::size_t>(slot)), expected[i].name);
          ASSERT_EQ(runs[page].positions[slot - head.first_slot(page)], expected[i].position);
        }
        std::int32_t n = 0;
        for (std::size_t page = 0; page < head.pages.size(); ++page) {
          ASSERT_GT(head.entries_on(page), 0);
          n += head.entries_on(page);
          ASSERT_TRUE(own.insert(head.pages[page].id).second) << "a page in two places";
          ++held[head.pages[page].id];
          bytes_in_pages += s.table.layer(h / 2).of(head.pages[page].kind).page_bytes();
        }
        ASSERT_EQ(n, head.n_entries);
        n_entries += n;
        if (shape_.layer(h / 2).sliding_window == 0) n_cut += n;
      }
      ASSERT_EQ(s.table.n_entries(), n_entries);
      ASSERT_EQ(s.table.n_cut_entries(), n_cut);
      ASSERT_EQ(s.table.bytes_in_pages(), bytes_in_pages);
      ASSERT_LE(s.table.bytes(), bytes_in_pages + 4 * row_bytes(EntryType::kF16, 64) + kFarPositionsBytes * own.size());
      ASSERT_EQ(s.table.bytes_beyond(s.table), 0U);
    }
    ASSERT_EQ(held.size(), pages_.size());
    for (const auto& [id, n] : held) ASSERT_EQ(pages_.at(id).n_references, n);
  }

  const CacheShape shape_ = GetParam().shape;
  std::mt19937 random_{11};
  NamedPages pages_;
  std::vector<Sequence> sequences_;
  std::int32_t next_name_ = 1;
};

TEST_P(PageTableTest, EqualsPlainListsUnderRandomChanges) {
  for (int step = 0; step < 1500; ++step) {
    const auto chosen = static_cast<std::size_t>(below(sequences_.size()));
    const int operation = below(10);
    SCOPED_TRACE("step " + std::to_string(step) + ", operation " + std::to_string(operation));
    Sequence& s = sequences_[chosen];
    if (operation < 3) {
      append(s);
    } else if (operation < 5) {
      const int layer = shape_.layer(1).sliding_window > 0 ? 0 : below(2);
      cut(s, layer, below(2));
    } else if (operation == 5) {
      truncate(s);
    } else if (operation == 6) {
      settle(s);
    } else if (operation == 7 && sequences_.size() < 5) {
      fork(Sequence(s));
    } else if (operation == 8 && sequences_.size() < 5) {
      copy_some(Sequence(s));
    } else if (operation == 9 && sequences_.size() > 1) {
      end(chosen);
    }
    ASSERT_FALSE(HasFailure());
    ASSERT_NO_FATAL_FAILURE(expect_whole());
  }
  while (!sequences_.empty()) end(sequences_.size() - 1);
  EXPECT_EQ(pages_.size(), 0U);
}

// A cascade cuts a head repeatedly: its entries move towards the front, neighbours together, in an order that needs no
// temporary copy.
TEST_P(PageTableTest, MovesInOrderThroughACascade) {
  Sequence& s = sequences_[0];
  constexpr std::int32_t kEntries = 200;
  std::vector<Named> source;
  std::vector<std::int32_t> all(kEntries);
  std::iota(all.begin(), all.end(), 0);
  for (const std::int32_t i : all) source.push_back({i, i});
  const kernels::EntryRun run = {.keys = nullptr, .values = nullptr, .positions = all.data(), .n_entries = kEntries};
  ASSERT_NO_FATAL_FAILURE(apply(
      s, 0, 0, s.table.plan_append_from(0, 0, {.runs = {&run, 1}, .n_entries = kEntries}, all, {}, {}, is_shared()),
      source));
  std::vector<Named>& entries = entries_of(s, 0, 0);
  for (entries = source; entries.size() > 2;) {
    std::vector<std::int32_t> kept(all.begin(), all.begin() + std::ssize(entries));
    kept.erase(kept.begin() + std::ssize(kept) / 2);
    const HeadPages& head = s.table.head(0, 0);
    const std::vector<kernels::EntryRun> runs = runs_of(head);
    const HeadPlan plan = s.table.plan_cut(0, 0, kept, {}, {.runs = runs, .n_entries = head.n_entries}, is_shared());
    EXPECT_EQ(plan.order, HeadPlan::Order::kAsListed);
    EXPECT_LE(plan.moves.size(), 2 * plan.n_pages);
    ASSERT_NO_FATAL_FAILURE(apply(s, 0, 0, plan));
    entries = selected(entries, kept);
    ASSERT_NO_FATAL_FAILURE(expect_whole());
  }
}

// A cut leaves pages without changes alone. Pages that a fork holds are replaced from the first change on.
TEST_P(PageTableTest, LeavesPagesAloneOnWhichNothingChanges) {
  Sequence& s = sequences_[0];
  std::vector<std::int32_t> positions(200);
  std::iota(positions.begin(), positions.end(), 0);
  ASSERT_NO_FATAL_FAILURE(apply(s, 0, 0, s.table.plan_append(0, 0, positions, AppendedAs::kCut, 0, {}, is_shared())));
  const HeadPages& head = s.table.head(0, 0);
  fork(Sequence(s));
  const std::vector<kernels::EntryRun> runs = runs_of(head);
  const auto cut_without = [&](std::int32_t entry) {
    std::vector<std::int32_t> kept = positions;
    kept.erase(kept.begin() + entry);
    return s.table.plan_cut(0, 0, kept, {}, {.runs = runs, .n_entries = head.n_entries}, is_shared());
  };
  EXPECT_TRUE(cut_without(199).changes.empty());
  const HeadPlan plan = cut_without(100);
  ASSERT_EQ(plan.changes.size(), plan.n_pages - head.page_of_entry(100));
  EXPECT_EQ(plan.changes.front().page, head.page_of_entry(100));
  for (const PageChange& change : plan.changes) EXPECT_EQ(change.memory, PageChange::Memory::kFresh);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PageTableTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace winnow
