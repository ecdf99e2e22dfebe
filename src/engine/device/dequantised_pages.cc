#include "engine/device/dequantised_pages.h"

#include <cstring>

#include "cache/cache_shape.h"

namespace winnow {

void DequantisedPages::show(device::Device& device, std::span<HeadRows> heads, int key_dim, int value_dim) {
  std::vector<device::CodedPage> coded;
  std::vector<std::byte> origins;
  std::vector<std::size_t> origin_of;  // the page's head's place among the origins
  for (const HeadRows& head : heads) {
    const std::size_t origin_at = origins.size();
    bool is_coded = false;
    for (const PageRows& page : head.pages) {
      if (!has_codes(page)) continue;
      is_coded = true;
      coded.push_back({.from = page, .to = page, .origin = nullptr});
      origin_of.push_back(head.origin ? origin_at : SIZE_MAX);
    }
    if (is_coded && head.origin) origins.insert(origins.end(), head.origin->begin(), head.origin->end());
  }
  if (coded.empty()) return;

  const std::size_t key_bytes = kPageEntries * row_bytes(EntryType::kF16, key_dim),
                    value_bytes = kPageEntries * row_bytes(EntryType::kF16, value_dim);
  grow(device, rows_, coded.size() * (key_bytes + value_bytes));
  const std::size_t listed = coded.size() * sizeof(device::CodedPage);
  grow(device, list_, listed + origins.size());
  std::byte* to = rows_.data();
  for (std::size_t i = 0; i < coded.size(); ++i, to += key_bytes + value_bytes) {
    device::CodedPage& page = coded[i];
    if (has_coded_rows(page.from.keys)) page.to.keys = to;
    if (has_coded_rows(page.from.values)) page.to.values = to + key_bytes;
    if (origin_of[i] != SIZE_MAX) page.origin = list_.data() + listed + origin_of[i];
  }
  std::vector<std::byte> list(listed + origins.size());
  std::memcpy(list.data(), coded.data(), listed);
  if (!origins.empty()) std::memcpy(list.data() + listed, origins.data(), origins.size());
  device.upload(list_.data(), list.data(), list.size());
  device.queue(device::DequantisePages{.pages = list_.as<device::CodedPage>(),
                                       .n_pages = static_cast<int>(coded.size()),
                                       .key_dim = key_dim,
                                       .value_dim = value_dim});
  auto next = coded.begin();
  for (HeadRows& head : heads) {
    for (PageRows& page : head.pages) {
      if (has_codes(page)) page = (next++)->to;
    }
  }
}

}  // namespace winnow
