// The scores with which a sequence's entries stayed when they were last cut. A later cut, which sees other queries,
// uses them as well.
//
// A head's scores belong to its first entries in ascending position; entries that came after the cut have none yet.
// They are kept in bf16 and count towards the pool's limit. Copies (forks) share them. Not thread-safe, but different
// threads may set different heads.
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

  // The scores of one head. make() takes their memory, or throws Error(kOutOfMemory) if there is none, so that set()
  // cannot fail.
  class HeadScores;
  std::shared_ptr<const HeadScores> make(std::span<const float> scores) const;
  void set(int layer, int kv_head, std::shared_ptr<const HeadScores> scores) noexcept;

  // Returns a layer's scores [n_kv_head][n], with n at most the head's entries.
  std::vector<std::vector<float>> layer(int layer) const;
  std::size_t bytes() const;  // shared ones included
  void clear();

  // Write and read a layer's scores: per head a count and the scores as they are stored, in this machine's byte order.
  // read throws Error(kBadFile) if a head has more scores than entries in `cache` or one is not finite, and
  // Error(kOutOfMemory).
  void write(std::ostream& out, int layer) const;
  void read(std::istream& in, int layer, const RaggedCache& cache);

 private:
  std::vector<std::vector<std::shared_ptr<const HeadScores>>> layers_;  // [n_layer][n_kv_head], null: none
  std::shared_ptr<PagePool> pool_;
};

}  // namespace winnow
