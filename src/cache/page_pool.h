// Reference-counted pages of KV entries with a hard byte limit.
//
// Thread-safe: sessions on different threads share one pool. Memory comes from an EntryMemory in slabs and goes back to
// it: a slab whose pages are all free is freed, and in host memory trim() gives back the free pages inside partly used
// slabs.
//
// What the processor reads of a page, the offsets of positions, lies on it in host memory. In a pool of device memory
// it lies beside the page, in host memory of its own. Limit and statistics count both alike, so that sessions take the
// same bytes wherever their rows are.
//
// Lifetime: pages in use and reservations keep their pool alive, so they may outlive the last shared_ptr to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cache/entry_memory.h"
#include "cache/host_memory.h"
#include "cache/page_id.h"

namespace winnow {

// A page's bytes, which the pool owns; they are alive as long as a PageRef to them.
struct Page;

// Counted reference to a page. Copying shares the page; the last one to go returns it to the pool.
// Like a shared_ptr: different references to one page may be used by different threads, one reference may not.
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef&) noexcept;
  PageRef(PageRef&&) noexcept;
  PageRef& operator=(PageRef) noexcept;
  ~PageRef();

  PageId id() const;        // kNoPage for the empty reference
  std::byte* data() const;  // null for the empty reference; an address in the pool's memory
  bool is_shared() const;   // more than one reference: write to a copy
  explicit operator bool() const { return page_ != nullptr; }
  bool operator==(const PageRef& other) const { return page_ == other.page_; }  // the same page

  // Leaves the reference to the caller, who knows the page by its id from here on and ends it with PagePool::release.
  PageId detach() noexcept;

 private:
  friend class PagePool;
  explicit PageRef(Page* page) : page_(page) {}
  Page* page_ = nullptr;
};

struct PoolStatistics {
  std::size_t bytes_limit;     // on bytes_in_use + bytes_reserved; 0: none
  std::size_t bytes_in_use;    // pages that somebody holds
  std::size_t bytes_reserved;  // reservations that somebody holds
  // What the pages cost: in host memory whole pages of the operating system, those in use and free ones that have not
  // been given back yet; on a device whole slabs, and what lies beside them. Reservations are not in it.
  std::size_t bytes_resident;
  std::size_t bytes_peak;  // highest bytes_in_use + bytes_reserved since the start or reset_peak()
  std::size_t pages_in_use;
};

class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  // A byte_limit of 0 is no limit. Throws Error(kInvalidArgument) for a limit below 4,096 bytes, which can hold no page
  // of a real model.
  static std::shared_ptr<PagePool> create(std::size_t byte_limit,
                                          std::shared_ptr<EntryMemory> memory = HostMemory::shared());
  ~PagePool();

  const std::shared_ptr<EntryMemory>& memory() const;

  // A page of `page_bytes` bytes, 64-byte aligned, contents undefined. Pools hold pages of several sizes (each size has
  // its own slabs); a size is rounded up to a multiple of 64, in the statistics too. Throws Error(kOutOfMemory) that
  // names the limit and what is in use.
  //   bytes_beside: of these, what lies beside() the page in a pool of device memory
  PageRef acquire(std::size_t page_bytes, std::size_t bytes_beside = 0);

  // Pages by id, for tables that hold ids and count each of theirs as a reference. An id is known as long as the page
  // has a reference. None of these takes the pool's lock, but the last release of a page does.
  std::byte* data(PageId id) const noexcept;
  std::byte* beside(PageId id) const noexcept;  // in host memory; null in a pool of it
  bool is_shared(PageId id) const noexcept;     // more than one reference: write to a copy
  void retain(PageId id) noexcept;
  void release(PageId id) noexcept;

  // Counts memory that is not pages (a prefill's staging buffer) towards the same limit and peak.
  // Throws Error(kOutOfMemory). The reservation ends with the returned handle.
  std::shared_ptr<void> reserve(std::size_t bytes);

  // Gives free pages of host memory back to the operating system. Only whole pages of the operating system can go, so
  // up to two of them stay with each row of neighbouring free pages.
  void trim();

  // Starts a new peak at the present use.
  void reset_peak();

  PoolStatistics statistics() const;

 private:
  struct Impl;
  explicit PagePool(std::unique_ptr<Impl> impl);
  friend class PageRef;
  static void release(Page* page) noexcept;  // one reference
  void put_back(Page* page) noexcept;        // that nobody holds
  void unreserve(std::size_t bytes) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
