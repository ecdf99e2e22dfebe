// The entries of the layers that other ranks hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/ragged_cache.h"
#include "engine/ranks/pipeline.h"

namespace winnow {

// Counts the entries of a session's heads that methods cut and that other ranks of a pipeline hold: as they were when
// last gathered, and one more for every token since. Without other ranks there are none.
class RemoteEntries {
 public:
  // Exchanges counts with the other ranks, which call it together. cache: this rank's; n_tokens: the session's length.
  void gather(const Pipeline& pipeline, const RaggedCache& cache, std::int32_t n_tokens);
  void clear();

  // Returns the entries of all n_heads heads elsewhere at a length of n_tokens.
  std::int64_t count(std::int64_t n_heads, std::int32_t n_tokens) const;
  // Returns the entries of one head of another rank when last gathered. head: among the heads of all ranks.
  std::int32_t of_head(std::size_t head) const { return gathered_[head]; }

 private:
  std::vector<std::int32_t> gathered_;  // [heads of all ranks], 0 for own heads; empty before the first cut
  std::int32_t gathered_at_ = 0;        // the number of tokens at that time
};

}  // namespace winnow
