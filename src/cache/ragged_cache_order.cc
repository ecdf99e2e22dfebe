// In which order a RaggedCache stores a head's entries: those in more bits before the others, behind the first page.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <numeric>

#include "cache/ragged_cache.h"

namespace winnow {

std::vector<std::int32_t> RaggedCache::by_position(const Head& head) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(head.n_entries));
  std::iota(order.begin(), order.end(), 0);
  if (head.n_fine == 0) return order;
  std::vector<std::int32_t> positions;
  for (const kernels::EntryRun& run : head.runs) {
    run.positions.append_to(positions, run.n_entries);
  }
  const auto first = order.begin() + head.runs.front().n_entries;
  std::inplace_merge(first, first + static_cast<std::ptrdiff_t>(head.n_fine) * kPageEntries, order.end(),
                     [&](std::int32_t a, std::int32_t b) {
                       return positions[static_cast<std::size_t>(a)] < positions[static_cast<std::size_t>(b)];
                     });
  return order;
}

kernels::HeadEntries RaggedCache::entries_by_position(int layer, int kv_head,
                                                      std::vector<kernels::EntryRun>& runs) const {
  const Head& h = head(layer, kv_head);
  if (h.n_fine == 0) return entries(layer, kv_head);
  runs.clear();
  std::int32_t last_slot = -1;
  for (const std::int32_t entry : by_position(h)) {
    const std::int32_t at = h.n_skipped + entry;
    const std::size_t page = page_of(at);
    if (at == last_slot + 1 && !runs.empty() && at % kPageEntries != 0) {
      ++runs.back().n_entries;
    } else {
      runs.push_back(run_of(layout(layer), h, page, at % kPageEntries, 1));
    }
    last_slot = at;
  }
  return {.runs = runs, .n_entries = h.n_entries};
}

std::vector<std::int32_t> RaggedCache::in_storage_order(std::span<const std::int32_t> indices,
                                                        std::span<const std::int32_t> fine) {
  assert(fine.size() % kPageEntries == 0);
  if (fine.empty()) return {indices.begin(), indices.end()};
  const auto others = indices.subspan(kPlainEntries);
  std::vector<std::int32_t> order(indices.begin(), indices.end() - std::ssize(others));
  order.reserve(indices.size());
  order.insert(order.end(), fine.begin(), fine.end());
  std::set_difference(others.begin(), others.end(), fine.begin(), fine.end(), std::back_inserter(order));
  assert(order.size() == indices.size());
  return order;
}

}  // namespace winnow
