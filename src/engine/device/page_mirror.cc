#include "engine/device/page_mirror.h"

#include <algorithm>
#include <utility>

namespace winnow {

void PageMirror::update(device::Device& device, RaggedCache& cache) {
  const CacheShape& shape = cache.shape();
  std::vector<std::size_t> changes;  // of every head, the first page to copy
  bool fits = is_current_;
  is_current_ = false;  // the changes that are taken are lost if this fails
  std::size_t head = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h, ++head) {
      changes.push_back(cache.take_changes(l, h));
      fits = fits && cache.n_pages(l, h) <= places_[head].capacity;
    }
  }
  if (!fits) {
    place(device, cache);
    std::fill(changes.begin(), changes.end(), 0);
  }
  head = 0;
  for (int l = 0; l < shape.n_layer(); ++l) {
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h, ++head) {
      if (changes[head] < cache.n_pages(l, h)) copy(device, cache, l, h, changes[head]);
      tables_[head] = {.pages = pages_.as<PageRows>() + places_[head].begin,
                       .first_slot = cache.first_slot(l, h),
                       .n_entries = cache.n_entries(l, h),
                       .origin = origin(device, cache, l, h, head)};
    }
  }
  is_current_ = true;
}

void PageMirror::place(device::Device& device, const RaggedCache& cache) {
  const CacheShape& shape = cache.shape();
  std::vector<Place> places;
  std::size_t n_pages = 0;
  first_head_.clear();
  for (int l = 0; l < shape.n_layer(); ++l) {
    first_head_.push_back(places.size());
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h) {
      constexpr std::size_t kSpare = 8;  // pages
      const std::size_t n = cache.n_pages(l, h);
      places.push_back({.begin = n_pages, .capacity = n + n / 8 + kSpare});
      n_pages += places.back().capacity;
    }
  }
  if (pages_.bytes() < n_pages * sizeof(PageRows)) {
    device.wait();  // steps under way read the old tables
    pages_ = {};
    pages_ = device.allocate(n_pages * sizeof(PageRows));
  }
  tables_.resize(places.size());
  places_ = std::move(places);
}

const std::byte* PageMirror::origin(device::Device& device, const RaggedCache& cache, int layer, int kv_head,
                                    std::size_t head) {
  const PageStore::Origin& now = cache.origin(layer, kv_head);
  if (now == nullptr) return nullptr;
  if (!origins_) {
    const CacheShape& shape = cache.shape();
    origin_stride_ = 0;
    for (int l = 0; l < shape.n_layer(); ++l) origin_stride_ = std::max(origin_stride_, shape.origin_bytes(l));
    origins_ = device.allocate(origin_stride_ * tables_.size());
    copied_.assign(tables_.size(), nullptr);
  }
  std::byte* const to = origins_.data() + head * origin_stride_;
  if (copied_[head] != now) {
    device.upload(to, now->data(), now->size());
    copied_[head] = now;
  }
  return to;
}

void PageMirror::copy(device::Device& device, const RaggedCache& cache, int layer, int kv_head,
                      std::size_t first_page) {
  rows_.clear();
  for (std::size_t page = first_page; page < cache.n_pages(layer, kv_head); ++page) {
    rows_.push_back(cache.page_rows(layer, kv_head, page));
  }
  const std::size_t head = first_head_[static_cast<std::size_t>(layer)] + static_cast<std::size_t>(kv_head);
  device.upload(pages_.as<PageRows>() + places_[head].begin + first_page, rows_.data(),
                rows_.size() * sizeof(PageRows));
}

}  // namespace winnow
