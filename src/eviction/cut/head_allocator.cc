#include "winnow/head_allocator.h"

#include "eviction/cut/shares.h"

namespace winnow {

std::vector<std::int64_t> head_caps(const LayerRanking& ranking) {
  std::vector<std::int64_t> caps;
  for (int h = 0; h < ranking.n_kv_head(); ++h) caps.push_back(std::ssize(ranking.head(h).order));
  return caps;
}

std::vector<std::int64_t> HeadAllocator::ceilings(const HeadRequest& request, const EvictionOptions& options) const {
  std::vector<std::int64_t> result;
  for (const double share : shares(request, options)) result.push_back(ceiling(share));
  return result;
}

}  // namespace winnow
