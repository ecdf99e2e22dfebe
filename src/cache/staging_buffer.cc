#include "cache/staging_buffer.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace winnow {
namespace {

// Each array starts on a cache line.
std::size_t round_up_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

// The blocks that layers take in turn come first, then one block for each shared layer.
std::vector<StagingBuffer::Layout> StagingBuffer::layouts(const CacheShape& shape, std::int32_t n_tokens,
                                                          int n_together) {
  std::vector<Layout> all;
  auto next_shared = static_cast<std::size_t>(n_together);
  for (int l = 0; l < shape.n_layer(); ++l) {
    const LayerShape& layer = shape.layer(l);
    const std::size_t block = layer.is_shared ? next_shared++ : static_cast<std::size_t>(l % n_together);
    const auto n_rows = static_cast<std::size_t>(layer.n_kv_head) * static_cast<std::size_t>(n_tokens);
    if (n_rows == 0) {
      all.push_back({.block = block, .values_at = 0, .end = 0});
      continue;
    }
    const std::size_t values_at = round_up_to_line(n_rows * shape.key_bytes(l));
    all.push_back({.block = block, .values_at = values_at, .end = values_at + n_rows * shape.value_bytes(l)});
  }
  return all;
}

std::size_t StagingBuffer::bytes_for(const CacheShape& shape, std::int32_t n_tokens, int n_together) {
  std::vector<std::size_t> blocks;
  for (const Layout& layout : layouts(shape, n_tokens, n_together)) {
    blocks.resize(std::max(blocks.size(), layout.block + 1));
    blocks[layout.block] = std::max(blocks[layout.block], layout.end);
  }
  return std::accumulate(blocks.begin(), blocks.end(), static_cast<std::size_t>(n_tokens) * sizeof(std::int32_t));
}

int StagingBuffer::layers_within(std::size_t bytes, const CacheShape& shape, std::int32_t n_tokens, int n_layers) {
  int n = n_layers;
  while (n > 1 && bytes_for(shape, n_tokens, n) > bytes) --n;
  return n;
}

StagingBuffer::StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                             const std::shared_ptr<PagePool>& pool, int n_together)
    : shape_(shape),
      layouts_(layouts(shape, n_tokens, n_together)),
      n_tokens_(n_tokens),
      first_position_(first_position),
      bytes_(bytes_for(shape, n_tokens, n_together)) {
  assert(n_tokens > 0 && first_position >= 0 && n_together > 0);
  std::vector<std::size_t> sizes;
  for (int l = 0; l < shape.n_layer(); ++l) {
    const Layout& layout = layouts_[static_cast<std::size_t>(l)];
    sizes.resize(std::max(sizes.size(), layout.block + 1));
    blocks_.resize(sizes.size());
    sizes[layout.block] = std::max(sizes[layout.block], layout.end);
    if (layout.end > 0) blocks_[layout.block].last_layer = l;
  }
  positions_reservation_ = pool->reserve(static_cast<std::size_t>(n_tokens) * sizeof(std::int32_t));
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (sizes[b] == 0) continue;
    blocks_[b].reservation = pool->reserve(sizes[b]);
    blocks_[b].memory = MemoryBlock(pool->memory(), sizes[b]);
  }
  positions_.resize(static_cast<std::size_t>(n_tokens));
  std::iota(positions_.begin(), positions_.end(), first_position);
  begin_layer(0);
}

void StagingBuffer::begin_layer(int layer) {
  layer_ = layer;
  const Layout& layout = layouts_[static_cast<std::size_t>(layer)];
  keys_ = blocks_[layout.block].memory.data();
  values_ = keys_ + layout.values_at;
  const bool has_entries = shape_.layer(layer).n_kv_head > 0;
  key_bytes_ = has_entries ? shape_.key_bytes(layer) : 0;
  value_bytes_ = has_entries ? shape_.value_bytes(layer) : 0;
}

void StagingBuffer::end_layer(int layer) {
  Block& block = blocks_[layouts_[static_cast<std::size_t>(layer)].block];
  if (shape_.layer(layer).is_shared || block.last_layer > layer) return;
  block.memory = {};
  block.reservation.reset();
}

void StagingBuffer::begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) {
  begin_layer(layer);
  n_before_ = first_position - first_position_;
  runs_.clear();
  for (int h = 0; h < shape_.layer(layer).n_kv_head; ++h) runs_.push_back(run(h, n_before_ + n_rows));
}

EntrySink::Head StagingBuffer::head(int kv_head) const {
  const kernels::EntryRun& run = runs_[static_cast<std::size_t>(kv_head)];
  return {.entries = {.runs = std::span(&run, 1), .n_entries = run.n_entries}, .n_before = n_before_};
}

HeadRows StagingBuffer::head_rows(int kv_head) const {
  HeadRows rows = {.n_entries = runs_[static_cast<std::size_t>(kv_head)].n_entries};
  for (std::int32_t token = 0; token < rows.n_entries; token += kPageEntries) {
    const std::size_t first = row(kv_head, token);
    rows.pages.push_back({.keys = keys_ + first * key_bytes_, .values = values_ + first * value_bytes_});
  }
  return rows;
}

std::size_t StagingBuffer::row(int kv_head, std::int32_t token) const {
  assert(kv_head >= 0 && kv_head < shape_.layer(layer_).n_kv_head && token >= 0 && token < n_tokens_);
  return static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(n_tokens_) + static_cast<std::size_t>(token);
}

kernels::EntryRun StagingBuffer::run(int kv_head, std::int32_t n_tokens) const {
  assert(n_tokens >= 0 && n_tokens <= n_tokens_);
  const std::size_t first = row(kv_head, 0);
  return {.keys = keys_ + first * key_bytes_,
          .values = values_ + first * value_bytes_,
          .positions = positions_.data(),
          .n_entries = n_tokens,
          .key_type = shape_.key_type,
          .value_type = shape_.value_type};
}

std::byte* StagingBuffer::key_row(int kv_head, std::int32_t token) { return keys_ + row(kv_head, token) * key_bytes_; }

std::byte* StagingBuffer::value_row(int kv_head, std::int32_t token) {
  return values_ + row(kv_head, token) * value_bytes_;
}

}  // namespace winnow
