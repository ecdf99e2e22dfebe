// The pages of one sequence as bytes: rows of keys and values and offsets of positions, found by the ids that a page
// table holds. A PageStore carries out what a PageTable plans, and quantises on the way. It knows no order of pages but
// the plan's.
//
// If the pool's memory is a device's, the device moves the rows. Those that are converted come to the processor, which
// quantises them, and go back.
//
// Not thread-safe, but different threads may carry out plans of different heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/entry_memory.h"
#include "cache/head_plan.h"
#include "cache/key_writer.h"
#include "cache/memory_block.h"
#include "cache/page_format.h"
#include "cache/page_id.h"
#include "cache/page_pool.h"
#include "cache/page_rows.h"
#include "cache/page_table.h"
#include "kernels/entries/code_feedback.h"
#include "winnow/entries.h"

namespace winnow {

// The parts of a page that belong to one entry. The rows' addresses are in the pool's memory.
struct PageSlot {
  std::byte* key;
  std::byte* value;
  std::uint16_t* offset;  // of its position from the page's origin
};

class PageStore {
 public:
  PageStore(std::shared_ptr<PagePool> pool, std::size_t n_heads)
      : pool_(std::move(pool)), is_host_(pool_->memory()->is_host()), heads_(n_heads) {}

  const std::shared_ptr<PagePool>& pool() const { return pool_; }
  EntryMemory& memory() const { return *pool_->memory(); }
  bool is_host() const { return is_host_; }
  bool is_shared(PageId page) const { return pool_->is_shared(page); }
  void retain(const HeadPages& table) noexcept;
  void release(const TablePage& page) noexcept { pool_->release(page.id); }

  PageSlot slot(const PageFormat& format, PageId page, std::int32_t index) const;
  PageRef acquire(const PageFormat& format) const { return pool_->acquire(format.page_bytes(), format.offset_bytes()); }
  // Returns n entries of a page from a slot on. head: its number among the heads of all layers
  kernels::EntryRun run(const LayerFormat& format, std::size_t head, const TablePage& page, std::int32_t first_slot,
                        std::int32_t n) const;

  using Origin = KeyOrigin;
  const Origin& origin(std::size_t head) const { return heads_[head].origin; }
  void set_origin(std::size_t head, Origin origin) noexcept { heads_[head].origin = std::move(origin); }

  // Gives the mean of the keys that the head's next quantised keys may be the first of: those after the first
  // kPlainEntries of the plan's source. Without it, the mean is taken on the processor.
  void offer_origin(std::size_t head, Origin mean) noexcept { heads_[head].offered = std::move(mean); }

  // Sets the error feedback with which keys of a head are quantised from here on; null: number by number.
  void set_feedback(std::size_t head, std::shared_ptr<const kernels::CodeFeedback> feedback) noexcept {
    heads_[head].feedback = std::move(feedback);
  }

  // Forgets a head's origin and feedback.
  void clear(std::size_t head) noexcept { heads_[head] = Head(); }

  // Quantises values in place, on a page that only this head holds. Takes no page.
  void quantise_values_in_place(const LayerFormat& format, const TablePage& page, PageKind to, std::int32_t n);

  class Transaction;

 private:
  struct Head {
    Origin origin = {};
    Origin offered = {};
    std::shared_ptr<const kernels::CodeFeedback> feedback = {};
  };

  std::shared_ptr<PagePool> pool_;
  bool is_host_;
  std::vector<Head> heads_;  // of all layers
};

// A transaction that carries out one plan.
class PageStore::Transaction {
 public:
  // Takes everything that the plan needs: pages, and room for moving rows; rows of a device's memory are converted.
  // Throws Error(kOutOfMemory) and std::bad_alloc; no state has changed then. `table` and `plan` outlive the
  // transaction.
  //   source: entries from outside, in the same memory, or those whose mean becomes the head's origin
  Transaction(PageStore& store, const LayerFormat& format, std::size_t head, const HeadPages& table, HeadPlan& plan,
              const kernels::HeadEntries& source);

  // Moves the bytes, drops the references to pages that go and gives the plan the ids of the new ones. The table must
  // commit the plan at once.
  void carry_out() noexcept;

 private:
  // An entry's rows, wherever they are.
  struct Rows {
    EntryType key_type, value_type;
    std::size_t key_bytes, value_bytes;
    const std::byte* key_origin;
    const std::byte* key;
    const std::byte* value;
  };

  // A device's rows that are converted.
  struct Conversion {
    Rows from;
    const PageFormat* to;
    std::byte* key;  // of the target
    std::byte* value;
  };

  bool is_plain(const Rows& from, const PageFormat& to) const;
  const std::byte* origin_of(EntryType key_type) const;
  Origin mean_key() const;
  Rows rows_at(const PageFormat& format, const std::byte* key, const std::byte* value) const;
  Rows outside_rows(std::int32_t index);
  void acquire_fresh_pages();
  void take_pages(bool releases_old) noexcept;
  void release_replaced() noexcept;
  void release_rest() noexcept;
  void prepare_source();
  void list_copies();
  void add_copy(std::size_t& last, std::byte* to, const std::byte* from, std::size_t bytes);
  void convert(std::vector<Conversion> conversions);
  void move() noexcept;
  void move_offsets() noexcept;
  void read_sources() noexcept;
  void write_targets() noexcept;
  void write(const Rows& from, const PageFormat& to, const PageSlot& target) noexcept;
  void place() noexcept;

  PageStore& store_;
  const LayerFormat& format_;
  std::size_t head_;
  const HeadPages& table_;
  HeadPlan& plan_;
  kernels::HeadEntries source_;
  std::vector<std::int32_t> source_ends_;  // of the source's runs
  std::size_t source_run_ = 0;
  std::vector<PageRef> fresh_;    // [changes], empty if none is fresh
  std::vector<std::byte> rows_;   // copies of all rows that move
  std::vector<ByteCopy> copies_;  // if a device moves the rows
  MemoryBlock converted_;         // what the copies take converted rows from
  Origin origin_;
  std::optional<KeyWriter> keys_;  // if keys are converted
};

}  // namespace winnow
