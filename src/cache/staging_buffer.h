// The full keys and values of ONE layer while its prompt is prefilled; all layers use it in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/ragged_cache.h"

namespace winnow {

class StagingBuffer {
 public:
  // Room for n_tokens tokens with the positions first_position, ...; counted in the pool's statistics and limit, returned
  // to the operating system at the end.
  StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                std::shared_ptr<PagePool> pool);
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // The first n_tokens entries of a KV head, as one run. The view lives as long as the buffer.
  kernels::EntryRun run(int kv_head, std::int32_t n_tokens) const;

  std::byte* key_row(int kv_head, std::int32_t token);
  std::byte* value_row(int kv_head, std::int32_t token);
  std::size_t bytes() const;

 private:
  CacheShape shape_;
  std::int32_t n_tokens_;
  std::byte* keys_ = nullptr;    // [n_kv_head][n_tokens][head_dim], key_type
  std::byte* values_ = nullptr;  // [n_kv_head][n_tokens][head_dim], value_type
  std::vector<std::int32_t> positions_;
  std::shared_ptr<void> reservation_;
  std::size_t bytes_ = 0;
};

}  // namespace winnow
