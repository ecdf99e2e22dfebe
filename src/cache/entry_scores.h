// The scores with which a sequence's entries stayed when they were last cut: what a later cut, which sees other
// queries, goes by as well.
//
// Scores of a head are of its first entries in ascending position; what came after the cut has none yet. They are kept
// in bf16 and count towards the pool's limit. Copies (forks) share them. Not thread-safe, but different heads may be
// set by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_pool.h"
#include "cache/ragged_cache.h"
#include "winnow/entry_type.h"

namespace winnow {

class EntryScores {
 public:
  static constexpr EntryType kStored = EntryType::kBF16;

  EntryScores(const CacheShape& shape, std::shared_ptr<PagePool> pool);

  // Scores that are ready to be set: takes the memory, and throws Error(kOutOfMemory) where there is none.
  class HeadScores;
  std::shared_ptr<const HeadScores> make(std::span<const float> scores) const;
  void set(int layer, int kv_head, std::shared_ptr<const HeadScores> scores) noexcept;

  // [n_kv_head][n] of a layer, n at most the head's entries.
  std::vector<std::vector<float>> layer(int layer) const;
  std::size_t bytes() const;  // shared or not
  void clear();

  // Of a layer: per head a count and the scores as they are stored, in this machine's byte order. read throws
  // Error(kBadFile) for more scores than `cache` has entries and for one that is not finite, and Error(kOutOfMemory).
  void write(std::ostream& out, int layer) const;
  void read(std::istream& in, int layer, const RaggedCache& cache);

 private:
  std::vector<std::vector<std::shared_ptr<const HeadScores>>> layers_;  // [n_layer][n_kv_head], null: none
  std::shared_ptr<PagePool> pool_;
};

}  // namespace winnow
