// A buffer of the full keys and values of ONE layer while its prompt is prefilled; all layers use it in turn. It can
// also hold several consecutive layers, if rows go through all of them before the next rows do. Only layers whose
// entries later layers attend to (LayerShape::is_shared) have memory of their own, until the end. Rows lie in the
// pool's memory, which may be a device's: then the processor must not follow their addresses.
//
// Different threads may write different rows; not thread-safe otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/entry_sink.h"
#include "cache/memory_block.h"

namespace winnow {

class StagingBuffer final : public EntrySink {
 public:
  // Takes room for n_tokens (at least 1) tokens with the positions first_position, ... in n_together layers at a time;
  // counted in the pool's statistics and limit, returned to the pool's memory at the end. Throws Error(kOutOfMemory).
  StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                const std::shared_ptr<PagePool>& pool, int n_together = 1);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // Returns the bytes of a buffer for n_tokens tokens: those of the largest layer, or of n_together layers, and of all
  // layers that are shared.
  static std::size_t bytes_for(const CacheShape& shape, std::int32_t n_tokens, int n_together = 1);
  // Returns how many of n_layers layers (at least one) can be held together within so many bytes.
  static int layers_within(std::size_t bytes, const CacheShape& shape, std::int32_t n_tokens, int n_layers);

  // Makes the buffer this layer's; the entries of the layer n_together before it are lost, unless that is shared.
  void begin_layer(int layer);
  // Declares that this layer is not read any more: frees its memory if no later layer takes it.
  void end_layer(int layer);

  // Copies entries of the present layer, which has no window, to behind those of the first n_prompt tokens. Rows at
  // positions behind these see the copies and themselves, instead of all entries, until rows of the n_prompt tokens or
  // of another layer begin, or others are copied. There must be room for the copies and the rows.
  //   entries: [n_kv_head]; those at the front that the present copies begin with, too, are not copied again
  void show_only(std::int32_t n_prompt, std::span<const std::vector<std::int32_t>> entries);

  const CacheShape& shape() const override { return shape_; }
  // Calls begin_layer and makes the heads end with these rows.
  void begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) override;
  Head head(int kv_head) const override;
  // Returns pages that lie one after the other; the last one may be partial.
  HeadRows head_rows(int kv_head) const override;

  // Returns the first n_tokens entries of a KV head, as one run. The view lives as long as the buffer.
  kernels::EntryRun run(int kv_head, std::int32_t n_tokens) const;

  std::byte* key_row(int kv_head, std::int32_t entry) override;
  std::byte* value_row(int kv_head, std::int32_t entry) override;
  std::size_t bytes() const { return bytes_; }  // at construction

 private:
  // A layer's part of a block, which layers take in turn.
  struct Layout {
    std::size_t block, values_at, end;
  };
  struct Block {
    int last_layer = 0;            // the last layer that uses the block
    Reservation reservation = {};  // outlives the memory that it counts
    MemoryBlock memory = {};       // a layer's two arrays below
  };
  // Returns the layout of every layer.
  static std::vector<Layout> layouts(const CacheShape& shape, std::int32_t n_tokens, int n_together);
  std::size_t row(int kv_head, std::int32_t token) const;
  // Returns entries of a KV head from a row on, as one run.
  kernels::EntryRun run_from(int kv_head, std::int32_t first, std::int32_t n_entries) const;

  CacheShape shape_;
  std::vector<Layout> layouts_;  // [n_layer]
  std::int32_t n_tokens_;
  std::int32_t first_position_;
  int layer_ = 0;
  std::int32_t first_row_ = 0;           // of the heads' entries
  std::vector<std::int32_t> n_before_;   // [n_kv_head] entries before the present rows
  std::vector<kernels::EntryRun> runs_;  // [n_kv_head] of the layer, up to and including the present rows
  // Copies say what rows behind the prompt see of a layer; without them they see everything.
  struct Shown {
    int layer = 0;
    std::int32_t first_row = 0;                        // where the copies begin: behind the prompt
    std::vector<std::vector<std::int32_t>> entries{};  // [n_kv_head] that were copied
  };
  std::optional<Shown> shown_;
  std::shared_ptr<EntryMemory> memory_;
  std::size_t key_bytes_ = 0;    // of a row
  std::size_t value_bytes_ = 0;  // of a row
  std::size_t bytes_;
  Reservation positions_reservation_;
  std::vector<std::int32_t> positions_;  // [n_tokens], the same for all heads
  std::vector<Block> blocks_;
  std::byte* keys_ = nullptr;    // [n_kv_head][n_tokens][key_dim], key_type
  std::byte* values_ = nullptr;  // [n_kv_head][n_tokens][value_dim], value_type
};

}  // namespace winnow
