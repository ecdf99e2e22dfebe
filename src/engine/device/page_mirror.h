// The page tables of a sequence in a device's memory, kept in step with its cache: only what has changed is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/page_rows.h"
#include "cache/ragged_cache.h"
#include "device/device.h"

namespace winnow {

// Belongs to one RaggedCache. Not thread-safe.
class PageMirror {
 public:
  // Brings the tables up to date. Throws Error(kOutOfMemory); the next call tries again.
  void update(device::Device& device, RaggedCache& cache);

  // Returns where the pages of a head lie, and its entries: a cache's tables as of the last update.
  const device::HeadTable& table(int layer, int kv_head) const {
    return tables_[first_head_[static_cast<std::size_t>(layer)] + static_cast<std::size_t>(kv_head)];
  }
  std::size_t bytes() const { return pages_.bytes() + origins_.bytes(); }

 private:
  struct Place {
    std::size_t begin = 0, capacity = 0;  // of a head's pages, in pages_
  };
  // Gives every head room for more pages than it has.
  void place(device::Device& device, const RaggedCache& cache);
  void copy(device::Device& device, const RaggedCache& cache, int layer, int kv_head, std::size_t first_page);
  // Returns where a head's origin lies on the device, null without one; copies it if it is new.
  const std::byte* origin(device::Device& device, const RaggedCache& cache, int layer, int kv_head, std::size_t head);

  bool is_current_ = false;  // the tables were up to date after the last update
  device::Buffer pages_;
  std::vector<std::size_t> first_head_;    // [n_layer]
  std::vector<Place> places_;              // [heads of all layers]
  std::vector<device::HeadTable> tables_;  // likewise
  std::vector<PageRows> rows_;             // on their way
  device::Buffer origins_;                 // [heads of all layers][largest key_dim] float16, if keys are codes
  std::size_t origin_stride_ = 0;          // bytes of each, a multiple of 16 like those of all float rows
  std::vector<PageStore::Origin> copied_;  // [heads of all layers] the origins that it holds
};

}  // namespace winnow
