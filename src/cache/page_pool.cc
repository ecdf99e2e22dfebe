#include "cache/page_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/round_up.h"
#include "cache/mapped_memory.h"
#include "cache/memory_block.h"
#include "cache/spare_memory.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kPageAlignment = 64;

// Slabs are large enough that mapping is rare, and small enough that they do become empty.
constexpr std::size_t kSlabBytes = 512 * 1024;

// A device's slab costs its full size, and a call that waits for the device. The size grows with the memory already
// taken.
constexpr std::size_t kSmallestDeviceSlab = 2 << 20, kLargestDeviceSlab = 64 << 20;
constexpr std::size_t kDeviceSlabs = 8;

class Slab;

}  // namespace

// A page, which lives in its slab. Every field but the count is guarded by the pool's mutex or does not change while
// there is a reference.
struct Page {
  std::atomic<std::uint32_t> n_references{0};
  std::uint32_t index = 0;  // within the slab
  bool in_use = false;
  PageId id = kNoPage;  // while it is in use
  Slab* slab = nullptr;
  std::byte* data = nullptr;
  std::byte* beside = nullptr;
};

namespace {

struct PageSize {
  std::size_t bytes;   // total
  std::size_t beside;  // bytes of these in separate host memory

  // Returns the distance from page to page in a slab.
  std::size_t stride() const { return beside == 0 ? bytes : round_up(bytes - beside, kPageAlignment); }
  bool operator<(const PageSize& other) const {
    return bytes != other.bytes ? bytes < other.bytes : beside < other.beside;
  }
};

// Pages of one size that lie side by side in one block. The pool's mutex guards them.
class Slab {
 public:
  Slab(PagePool* pool, std::uint64_t id, PageSize page_size, std::size_t n_pages)
      : pool_(pool),
        id_(id),
        page_size_(page_size),
        n_pages_(n_pages),
        pages_(std::make_unique<Page[]>(n_pages)),
        free_(n_pages),
        beside_(n_pages * page_size.beside),
        memory_(pool->memory(), round_up(n_pages * page_size.stride(), os_page_bytes())),
        touched_(pool->memory()->is_host() ? memory_.bytes() / os_page_bytes() : 0, false) {
    for (std::uint32_t i = 0; i < n_pages; ++i) {
      pages_[i].index = i;
      pages_[i].slab = this;
      pages_[i].data = memory_.data() + i * page_size.stride();
      if (page_size.beside > 0) pages_[i].beside = beside_.data() + i * page_size.beside;
    }
    std::iota(free_.begin(), free_.end(), 0U);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  PagePool* pool() const { return pool_; }
  std::uint64_t id() const { return id_; }
  PageSize page_size() const { return page_size_; }
  bool is_full() const { return free_.empty(); }
  bool is_empty() const { return free_.size() == n_pages_; }
  std::size_t bytes_resident() const {
    return touched_.empty() ? memory_.bytes() + beside_.size() : n_touched_ * os_page_bytes();
  }

  // Returns the lowest free page: the used ones stay together, and trim finds whole pages of the operating system to
  // give back.
  Page* take() {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    Page& page = pages_[free_.back()];
    free_.pop_back();
    page.in_use = true;
    page.n_references.store(1, std::memory_order_relaxed);

    if (touched_.empty()) return &page;
    const std::size_t begin = page.index * page_size_.bytes;
    for (std::size_t i = begin / os_page_bytes(); i * os_page_bytes() < begin + page_size_.bytes; ++i) {
      if (!touched_[i]) ++n_touched_;
      touched_[i] = true;
    }
    return &page;
  }

  // Never allocates: free_ has held all pages before.
  void put_back(Page* page) noexcept {
    page->in_use = false;
    free_.push_back(page->index);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }

  void give_back_free_pages() noexcept {
    for (std::size_t first = 0; first < touched_.size(); ++first) {
      std::size_t end = first;
      while (end < touched_.size() && touched_[end] && !holds_page_in_use(end)) touched_[end++] = false;
      if (end == first) continue;
      memory_.give_back(first * os_page_bytes(), (end - first) * os_page_bytes());
      n_touched_ -= end - first;
      first = end;
    }
  }

 private:
  bool holds_page_in_use(std::size_t os_page) const {
    const std::size_t begin = os_page * os_page_bytes();
    const std::size_t end = begin + os_page_bytes();
    for (std::size_t i = begin / page_size_.bytes; i < n_pages_ && i * page_size_.bytes < end; ++i) {
      if (pages_[i].in_use) return true;
    }
    return false;
  }

  PagePool* pool_;
  std::uint64_t id_;  // ascending with age
  PageSize page_size_;
  std::size_t n_pages_;
  std::unique_ptr<Page[]> pages_;    // [n_pages]
  std::vector<std::uint32_t> free_;  // indices of the free pages, a min-heap
  std::vector<std::byte> beside_;    // [n_pages][page_size.beside]
  MemoryBlock memory_;               // [n_pages][page_size.stride()]
  // Per page of the operating system, in host memory only: true if it was handed out since it was last given back.
  std::vector<bool> touched_;
  std::size_t n_touched_ = 0;
};

// The slabs of one page size, by id. Pages come from the oldest slab that has one, so that young slabs empty. A slab
// changes maps as a node: its address stays, and no memory is allocated on release.
struct SizeClass {
  std::map<std::uint64_t, Slab> open;  // at least one free page, at least one in use
  std::map<std::uint64_t, Slab> full;
};

// The table from ids to pages. Its chunks double in size and never move, so that the holder of an id finds its page
// while other threads add pages: an id's place is written before the id is handed out. The pool's mutex guards all but
// page().
class PageIds {
 public:
  // Makes room for one more id. Only this function allocates; it has the strong guarantee.
  void reserve() {
    if (!free_.empty()) return;
    const std::size_t n = kFirstChunk << n_chunks_;
    auto chunk = std::make_unique<Page*[]>(n);
    const std::size_t begin = n - kFirstChunk;  // ids in the chunks before
    free_.reserve(begin + n);
    for (std::size_t i = n; i-- > 0;) free_.push_back(static_cast<std::uint32_t>(begin + i));
    chunks_[n_chunks_++] = std::move(chunk);
  }
  PageId add(Page* page) noexcept {
    const PageId id{free_.back()};
    free_.pop_back();
    at(id) = page;
    return id;
  }
  void remove(PageId id) noexcept { free_.push_back(static_cast<std::uint32_t>(id)); }

  Page* page(PageId id) const noexcept { return at(id); }

 private:
  static constexpr std::size_t kFirstChunk = 64;

  Page*& at(PageId id) const noexcept {
    const std::size_t number = static_cast<std::size_t>(id) + kFirstChunk;
    const auto chunk = static_cast<std::size_t>(std::bit_width(number / kFirstChunk)) - 1;
    return chunks_[chunk][number - (kFirstChunk << chunk)];
  }

  std::array<std::unique_ptr<Page*[]>, 26> chunks_;  // as many as 32 bits can number
  std::size_t n_chunks_ = 0;
  std::vector<std::uint32_t> free_;  // the last one is handed out next
};

}  // namespace

struct PagePool::Impl {
  mutable std::mutex mutex;
  std::size_t limit = 0;  // 0: none
  std::size_t in_use = 0;
  std::size_t reserved = 0;
  std::size_t resident = 0;
  std::size_t peak = 0;
  std::size_t n_pages = 0;
  std::uint64_t next_slab_id = 0;
  std::shared_ptr<EntryMemory> memory;
  std::map<PageSize, SizeClass> size_classes;
  PageIds ids;
  std::shared_ptr<PagePool> self;  // set while a page is in use: pages keep their pool alive

  // The functions below expect the mutex to be held.

  void require_room(std::size_t bytes) const {
    const std::size_t used = in_use + reserved;
    if (limit == 0 || (used <= limit && bytes <= limit - used)) return;
    throw Error(ErrorCode::kOutOfMemory,
                "the KV cache needs " + std::to_string(bytes) + " bytes more, but " + std::to_string(used) +
                    " of its limit of " + std::to_string(limit) +
                    " bytes are in use: raise the limit, lower the KV budget or shorten the prompt");
  }

  // Called before memory is taken from the operating system, so that free pages do not push the process past the limit.
  void trim_for(std::size_t bytes) noexcept {
    if (limit != 0 && resident + reserved + bytes > limit) trim();
  }

  void trim() noexcept {
    for (auto& [page_size, size_class] : size_classes) {
      for (auto& [id, slab] : size_class.open) {
        resident -= slab.bytes_resident();
        slab.give_back_free_pages();
        resident += slab.bytes_resident();
      }
    }
  }

  // Returns the number of pages of the next slab.
  std::size_t slab_pages(PageSize page_size) const {
    std::size_t bytes = kSlabBytes;
    if (!memory->is_host()) {
      bytes = std::clamp(resident / kDeviceSlabs, kSmallestDeviceSlab, kLargestDeviceSlab);
      if (limit != 0) bytes = std::min(bytes, limit - in_use - reserved);
    }
    return std::max<std::size_t>(1, bytes / page_size.bytes);
  }

  // Adds a slab. A device that has no room for a whole slab may have room for a smaller one.
  void add_slab(PagePool* pool, SizeClass& size_class, PageSize page_size) {
    const std::uint64_t id = next_slab_id++;
    for (std::size_t n = slab_pages(page_size);; n /= 2) {
      const bool is_last = memory->is_host() || n == 1;
      const auto add = [&] { size_class.open.try_emplace(id, pool, id, page_size, n); };
      if (is_last) add();
      if (is_last || has_memory_for(add)) break;
    }
    resident += size_class.open.at(id).bytes_resident();
  }

  void update_peak() { peak = std::max(peak, in_use + reserved); }
};

PageRef::PageRef(const PageRef& other) noexcept : page_(other.page_) {
  if (page_ != nullptr) page_->n_references.fetch_add(1, std::memory_order_relaxed);
}

PageRef::PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}

PageRef& PageRef::operator=(PageRef other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

PageRef::~PageRef() {
  if (page_ != nullptr) PagePool::release(page_);
}

PageId PageRef::detach() noexcept {
  const PageId detached = id();
  page_ = nullptr;
  return detached;
}

PageId PageRef::id() const { return page_ == nullptr ? kNoPage : page_->id; }

std::byte* PageRef::data() const { return page_ == nullptr ? nullptr : page_->data; }

bool PageRef::is_shared() const { return page_ != nullptr && page_->n_references.load(std::memory_order_acquire) > 1; }

PagePool::PagePool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PagePool::~PagePool() { assert(impl_->n_pages == 0 && impl_->reserved == 0); }

std::shared_ptr<PagePool> PagePool::create(std::size_t byte_limit, std::shared_ptr<EntryMemory> memory) {
  if (byte_limit != 0 && byte_limit < kSmallestLimit) {
    throw Error(ErrorCode::kInvalidArgument, "a KV cache limit of " + std::to_string(byte_limit) +
                                                 " bytes holds no entries: give at least " +
                                                 std::to_string(kSmallestLimit) + ", or 0 for no limit");
  }
  auto impl = std::make_unique<Impl>();
  impl->limit = byte_limit;
  impl->memory = std::move(memory);
  return std::shared_ptr<PagePool>(new PagePool(std::move(impl)));  // make_shared cannot see the constructor
}

const std::shared_ptr<EntryMemory>& PagePool::memory() const { return impl_->memory; }

PageRef PagePool::acquire(std::size_t page_bytes, std::size_t bytes_beside) {
  assert(page_bytes > bytes_beside);
  page_bytes = round_up(page_bytes, kPageAlignment);
  const PageSize page_size = {.bytes = page_bytes, .beside = impl_->memory->is_host() ? 0 : bytes_beside};
  const std::lock_guard lock(impl_->mutex);
  impl_->require_room(page_bytes);

  impl_->ids.reserve();
  SizeClass& size_class = impl_->size_classes[page_size];
  if (size_class.open.empty()) {
    impl_->trim_for(page_bytes);
    impl_->add_slab(this, size_class, page_size);
  }
  Slab& slab = size_class.open.begin()->second;
  impl_->resident -= slab.bytes_resident();
  Page* page = slab.take();
  page->id = impl_->ids.add(page);
  impl_->resident += slab.bytes_resident();
  if (slab.is_full()) size_class.full.insert(size_class.open.extract(slab.id()));

  impl_->in_use += page_bytes;
  if (impl_->n_pages++ == 0) impl_->self = shared_from_this();
  impl_->update_peak();
  return PageRef(page);
}

std::byte* PagePool::data(PageId id) const noexcept { return impl_->ids.page(id)->data; }

std::byte* PagePool::beside(PageId id) const noexcept { return impl_->ids.page(id)->beside; }

bool PagePool::is_shared(PageId id) const noexcept {
  return impl_->ids.page(id)->n_references.load(std::memory_order_acquire) > 1;
}

void PagePool::retain(PageId id) noexcept { impl_->ids.page(id)->n_references.fetch_add(1, std::memory_order_relaxed); }

void PagePool::release(PageId id) noexcept { release(impl_->ids.page(id)); }

// The decrement is a release and an acquire: what other threads did with the page happens before it is handed out anew,
// and before the last holder (for whom is_shared() is false) writes to it.
void PagePool::release(Page* page) noexcept {
  if (page->n_references.fetch_sub(1, std::memory_order_acq_rel) == 1) page->slab->pool()->put_back(page);
}

void PagePool::put_back(Page* page) noexcept {
  std::shared_ptr<PagePool> self;  // may be the pool's last owner: destroyed after the lock
  const std::lock_guard lock(impl_->mutex);
  Slab& slab = *page->slab;
  SizeClass& size_class = impl_->size_classes.find(slab.page_size())->second;

  impl_->ids.remove(std::exchange(page->id, kNoPage));
  impl_->in_use -= slab.page_size().bytes;
  if (--impl_->n_pages == 0) self = std::move(impl_->self);

  if (slab.is_full()) size_class.open.insert(size_class.full.extract(slab.id()));
  slab.put_back(page);
  if (slab.is_empty()) {
    impl_->resident -= slab.bytes_resident();
    size_class.open.erase(slab.id());  // frees it
  }
}

Reservation PagePool::reserve(std::size_t bytes) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->require_room(bytes);
    impl_->trim_for(bytes);
    impl_->reserved += bytes;
    impl_->update_peak();
  }
  // The handle is non-null only so that it is true in a condition. If its allocation fails, the deleter is called.
  return Reservation(this, [pool = shared_from_this(), bytes](void*) { pool->unreserve(bytes); });
}

void PagePool::unreserve(std::size_t bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->reserved -= bytes;
}

void PagePool::trim() {
  const std::lock_guard lock(impl_->mutex);
  impl_->trim();
}

void PagePool::reset_peak() {
  const std::lock_guard lock(impl_->mutex);
  impl_->peak = impl_->in_use + impl_->reserved;
}

PoolStatistics PagePool::statistics() const {
  const std::lock_guard lock(impl_->mutex);
  return {.bytes_limit = impl_->limit,
          .bytes_in_use = impl_->in_use,
          .bytes_reserved = impl_->reserved,
          .bytes_resident = impl_->resident,
          .bytes_peak = impl_->peak,
          .pages_in_use = impl_->n_pages};
}

}  // namespace winnow
