// Reference-counted pages of KV entries with a hard byte limit.
//
// Thread-safe: sessions on different threads share one pool. Memory comes from an EntryMemory in slabs and goes back to
// it: a slab whose pages are all free is freed, and in host memory trim() gives back the free pages inside partly used
// slabs.
//
// The offsets of positions, which the processor reads, lie on the page in host memory. In a pool of device memory they
// lie outside the page, in separate host memory. The limit and the statistics count both alike, so that a session takes
// the same number of bytes wherever its rows are.
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

// A page's bytes, which the pool owns and which live as long as a PageRef to them.
struct Page;

// A counted reference to a page. Copying it shares the page; the last reference returns the page to the pool.
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

  // Releases the reference to the caller, who holds it as the page's id from here on and drops it with
  // PagePool::release.
  PageId detach() noexcept;

 private:
  friend class PagePool;
  explicit PageRef(Page* page) : page_(page) {}
  Page* page_ = nullptr;
};

struct PoolStatistics {
  std::size_t bytes_limit;     // on bytes_in_use + bytes_reserved; 0: none
  std::size_t bytes_in_use;    // pages with a reference
  std::size_t bytes_reserved;  // live reservations
  // The memory that the pages cost, without reservations. In host memory: the operating system's pages that are in use,
  // or free and not given back yet. On a device: whole slabs and the host memory beside() their pages.
  std::size_t bytes_resident;
  std::size_t bytes_peak;  // highest bytes_in_use + bytes_reserved since the start or reset_peak()
  std::size_t pages_in_use;
};

// Bytes that count towards a pool's limit until the last copy of this is gone.
using Reservation = std::shared_ptr<void>;

class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  static constexpr std::size_t kSmallestLimit = 4096;  // can hold no page of a real model

  // Returns a new pool. A byte_limit of 0 means no limit. Throws Error(kInvalidArgument) for a limit below
  // kSmallestLimit.
  static std::shared_ptr<PagePool> create(std::size_t byte_limit,
                                          std::shared_ptr<EntryMemory> memory = HostMemory::shared());
  ~PagePool();

  const std::shared_ptr<EntryMemory>& memory() const;

  // Returns a page of `page_bytes` bytes, 64-byte aligned, contents undefined. Pools hold pages of several sizes (each
  // size has its own slabs); a size is rounded up to a multiple of 64, in the statistics too. Throws
  // Error(kOutOfMemory), whose message gives the limit and the bytes in use.
  //   bytes_beside: bytes of these that lie beside() the page in a pool of device memory
  PageRef acquire(std::size_t page_bytes, std::size_t bytes_beside = 0);

  // Access to pages by id, for tables in which each id counts as a reference. An id is valid as long as its page has a
  // reference. None of these takes the pool's lock, but the last release of a page does.
  std::byte* data(PageId id) const noexcept;
  std::byte* beside(PageId id) const noexcept;  // in host memory; null in a pool of host memory
  bool is_shared(PageId id) const noexcept;     // more than one reference: write to a copy
  void retain(PageId id) noexcept;
  void release(PageId id) noexcept;

  // Counts memory that is not pages (a prefill's staging buffer) towards the same limit and peak.
  // Throws Error(kOutOfMemory).
  Reservation reserve(std::size_t bytes);

  // Gives free pages of host memory back to the operating system. Only whole pages of the operating system can go, so
  // up to two of them stay with each run of neighbouring free pages.
  void trim();

  // Starts a new peak at the present use.
  void reset_peak();

  PoolStatistics statistics() const;

 private:
  struct Impl;
  explicit PagePool(std::unique_ptr<Impl> impl);
  friend class PageRef;
  static void release(Page* page) noexcept;  // drops one reference
  void put_back(Page* page) noexcept;        // a page without references
  void unreserve(std::size_t bytes) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
