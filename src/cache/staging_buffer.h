// The full keys and values of ONE layer while its prompt is prefilled; all layers use it in turn. Only layers whose
// entries later ones attend to (LayerShape::is_shared) have memory of their own, until the end.
//
// Different threads may write different rows; not thread-safe otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/entry_sink.h"
#include "cache/mapped_memory.h"

namespace winnow {

class StagingBuffer final : public EntrySink {
 public:
  // Room for n_tokens (at least 1) tokens with the positions first_position, ...; counted in the pool's statistics and
  // limit, returned to the operating system at the end. Throws Error(kOutOfMemory).
  StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                std::shared_ptr<PagePool> pool);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // What one for n_tokens tokens takes: the largest layer's, and that of all that are shared.
  static std::size_t bytes_for(const CacheShape& shape, std::int32_t n_tokens);

  // From here on the buffer is this layer's; what it holds of another one is lost, unless that is shared.
  void begin_layer(int layer);

  const CacheShape& shape() const override { return shape_; }
  // begin_layer, and heads that end with these rows.
  void begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) override;
  Head head(int kv_head) const override;

  // The first n_tokens entries of a KV head, as one run. The view lives as long as the buffer.
  kernels::EntryRun run(int kv_head, std::int32_t n_tokens) const;

  std::byte* key_row(int kv_head, std::int32_t token) override;
  std::byte* value_row(int kv_head, std::int32_t token) override;
  std::size_t bytes() const { return bytes_; }

 private:
  struct Layout {
    std::size_t keys_at, values_at, end;
  };
  // Of every layer.
  static std::vector<Layout> layouts(const CacheShape& shape, std::int32_t n_tokens);
  std::size_t row(int kv_head, std::int32_t token) const;

  CacheShape shape_;
  std::vector<Layout> layouts_;
  std::int32_t n_tokens_;
  std::int32_t first_position_;
  int layer_ = 0;
  std::int32_t n_before_ = 0;            // entries before the present rows
  std::vector<kernels::EntryRun> runs_;  // [n_kv_head] of the layer, up to and with the present rows
  std::size_t key_bytes_ = 0;            // of a row
  std::size_t value_bytes_ = 0;          // of a row
  std::size_t bytes_;
  std::shared_ptr<void> reservation_;  // outlives the memory that it counts
  MappedMemory memory_;                // holds the three arrays below
  std::byte* keys_;                    // [n_kv_head][n_tokens][key_dim], key_type
  std::byte* values_;                  // [n_kv_head][n_tokens][value_dim], value_type
  std::int32_t* positions_;            // [n_tokens], the same for all heads
};

}  // namespace winnow
