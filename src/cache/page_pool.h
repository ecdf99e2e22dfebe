// Reference-counted pages of KV entries with a hard byte limit.
//
// Thread-safe: sessions on different threads share one pool. Memory comes from the operating system in slabs (mmap) and
// goes back to it: a slab whose pages are all free is unmapped, and trim() gives back the free pages inside partly used
// slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace winnow {

// A page's bytes. Owned by the pool; alive as long as a PageRef to it.
struct Page;

// Counted reference to a page. Copying shares the page; the last one to go returns it to the pool.
class PageRef {
 public:
  PageRef() = default;
  PageRef(const PageRef&);
  PageRef(PageRef&&) noexcept;
  PageRef& operator=(PageRef) noexcept;
  ~PageRef();

  std::byte* data() const;          // null for the empty reference
  bool is_shared() const;           // more than one reference: write to a copy
  explicit operator bool() const { return page_ != nullptr; }

 private:
  friend class PagePool;
  explicit PageRef(Page* page) : page_(page) {}
  Page* page_ = nullptr;
};

struct PoolStatistics {
  std::size_t bytes_limit;      // 0: none
  std::size_t bytes_in_use;     // pages that somebody holds
  std::size_t bytes_resident;   // bytes_in_use + free pages not yet given back to the operating system
  std::size_t bytes_peak;       // highest bytes_in_use so far
  std::size_t pages_in_use;
};

class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  // byte_limit 0: no limit. Throws Error(kInvalidArgument) for a limit that cannot hold anything sensible.
  static std::shared_ptr<PagePool> create(std::size_t byte_limit);
  ~PagePool();

  // A page of `page_bytes` bytes, 64-byte aligned, contents undefined. Pools hold pages of several sizes (each size has
  // its own slabs). Throws Error(kOutOfMemory) that names the limit and what is in use.
  PageRef acquire(std::size_t page_bytes);

  // Counts memory that is not pages (a prefill's staging buffer) towards the same limit and statistics.
  // Throws Error(kOutOfMemory). The reservation ends with the returned handle.
  std::shared_ptr<void> reserve(std::size_t bytes);

  // Gives free pages back to the operating system.
  void trim();

  // Starts a new peak at the present use.
  void reset_peak();

  PoolStatistics statistics() const;

 private:
  struct Impl;
  explicit PagePool(std::unique_ptr<Impl> impl);
  friend class PageRef;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
