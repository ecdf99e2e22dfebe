// The full keys and values of ONE layer while its prompt is prefilled; all layers use it in turn.
//
// Different threads may write different rows; not thread-safe otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/mapped_memory.h"
#include "cache/ragged_cache.h"

namespace winnow {

class StagingBuffer {
 public:
  // Room for n_tokens (at least 1) tokens with the positions first_position, ...; counted in the pool's statistics and
  // limit, returned to the operating system at the end. Throws Error(kOutOfMemory).
  StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                std::shared_ptr<PagePool> pool);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // What one for n_tokens tokens takes: the largest layer's.
  static std::size_t bytes_for(const CacheShape& shape, std::int32_t n_tokens);

  // From here on the buffer is this layer's; what it holds of another one is lost.
  void begin_layer(int layer);

  // The first n_tokens entries of a KV head, as one run. The view lives as long as the buffer.
  kernels::EntryRun run(int kv_head, std::int32_t n_tokens) const;

  std::byte* key_row(int kv_head, std::int32_t token);
  std::byte* value_row(int kv_head, std::int32_t token);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Layout {
    std::size_t keys_at, values_at, bytes;
  };
  static Layout layout(const CacheShape& shape, int layer, std::int32_t n_tokens);
  std::size_t row(int kv_head, std::int32_t token) const;

  CacheShape shape_;
  std::int32_t n_tokens_;
  int layer_ = 0;
  std::size_t key_bytes_ = 0;    // of a row
  std::size_t value_bytes_ = 0;  // of a row
  std::size_t bytes_;
  std::shared_ptr<void> reservation_;  // outlives the memory that it counts
  MappedMemory memory_;                // holds the three arrays below
  std::byte* keys_;                    // [n_kv_head][n_tokens][key_dim], key_type
  std::byte* values_;                  // [n_kv_head][n_tokens][value_dim], value_type
  std::int32_t* positions_;            // [n_tokens], the same for all heads
};

}  // namespace winnow
