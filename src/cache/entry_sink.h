// An EntrySink takes the keys and values of rows as they pass through a layer, and shows the entries that these rows
// attend to. It is the staging buffer of a prompt or a sequence's cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/page_rows.h"
#include "cache/ragged_cache.h"

namespace winnow {

// Not thread-safe, but different threads may write different rows.
class EntrySink {
 public:
  // A KV head of the present layer.
  struct Head {
    kernels::HeadEntries entries;  // at least up to and including the last row's
    std::int32_t n_before;         // entries before the first row: row r is entry n_before + r
  };

  virtual ~EntrySink() = default;
  // Returns the shape with the types of the heads' entries; rows are written in its plain() types.
  virtual const CacheShape& shape() const = 0;

  // Begins n_rows rows of a layer from first_position on, for which the sink has room: heads and rows are this layer's
  // from here on. Invalidates views of heads.
  virtual void begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) = 0;

  virtual Head head(int kv_head) const = 0;
  // Returns the head up to and including the last row, as a device's kernels walk it: the rows' entries are the last
  // ones.
  virtual HeadRows head_rows(int kv_head) const = 0;
  // Return the address, in the sink's memory, at which an entry of the present layer is written.
  virtual std::byte* key_row(int kv_head, std::int32_t entry) = 0;
  virtual std::byte* value_row(int kv_head, std::int32_t entry) = 0;
};

// The end of a sequence's cache, whose heads have already been extended by all rows to come.
class CacheSink final : public EntrySink {
 public:
  explicit CacheSink(RaggedCache& cache) : cache_(cache) {}

  const CacheShape& shape() const override { return cache_.shape(); }
  void begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) override;
  Head head(int kv_head) const override;
  HeadRows head_rows(int kv_head) const override;
  std::byte* key_row(int kv_head, std::int32_t entry) override { return cache_.key_row(layer_, kv_head, entry); }
  std::byte* value_row(int kv_head, std::int32_t entry) override { return cache_.value_row(layer_, kv_head, entry); }

 private:
  RaggedCache& cache_;
  int layer_ = 0;
  std::int32_t first_position_ = 0, n_rows_ = 0;
};

}  // namespace winnow
