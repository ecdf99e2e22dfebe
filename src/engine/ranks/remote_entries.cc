#include "engine/ranks/remote_entries.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace winnow {

void RemoteEntries::gather(const Pipeline& pipeline, const RaggedCache& cache, std::int32_t n_tokens) {
  if (pipeline.n_ranks() == 1) return;
  const CacheShape& shape = cache.shape();
  std::vector<std::int32_t> own;
  for (int l = 0; l < shape.n_layer(); ++l) {
    if (!shape.layer(l).is_evictable()) continue;
    for (int h = 0; h < shape.layer(l).n_kv_head; ++h) own.push_back(cache.n_entries(l, h));
  }
  gathered_.clear();
  const auto all = pipeline.gather(std::as_bytes(std::span(own)));
  for (int rank = 0; rank < pipeline.n_ranks(); ++rank) {
    auto counts = numbers_in<std::int32_t>(all[static_cast<std::size_t>(rank)]);
    if (rank == pipeline.rank()) std::fill(counts.begin(), counts.end(), 0);
    gathered_.insert(gathered_.end(), counts.begin(), counts.end());
  }
  gathered_at_ = n_tokens;
}

void RemoteEntries::clear() {
  gathered_.clear();
  gathered_at_ = 0;
}

std::int64_t RemoteEntries::count(std::int64_t n_heads, std::int32_t n_tokens) const {
  return std::accumulate(gathered_.begin(), gathered_.end(), std::int64_t{0}) + n_heads * (n_tokens - gathered_at_);
}

}  // namespace winnow
