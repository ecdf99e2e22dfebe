#include "cache/staging_buffer.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/round_up.h"

namespace winnow {
namespace {

// Each array starts on a cache line, of so many bytes.
constexpr std::size_t kLine = 64;

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
    const std::size_t values_at = round_up(n_rows * shape.key_bytes(l), kLine);
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
      memory_(pool->memory()),
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
  first_row_ = 0;
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

void StagingBuffer::show_only(std::int32_t n_prompt, std::span<const std::vector<std::int32_t>> entries) {
  assert(std::ssize(entries) == shape_.layer(layer_).n_kv_head && shape_.layer(layer_).sliding_window == 0);
  const bool has_copies = shown_ && shown_->layer == layer_ && shown_->first_row == n_prompt;
  std::vector<ByteCopy> copies;
  for (int h = 0; h < std::ssize(entries); ++h) {
    std::span<const std::int32_t> missing = entries[static_cast<std::size_t>(h)];
    std::size_t n_there = 0;
    if (has_copies) {
      const std::vector<std::int32_t>& there = shown_->entries[static_cast<std::size_t>(h)];
      const auto first = std::mismatch(missing.begin(), missing.end(), there.begin(), there.end()).first;
      n_there = static_cast<std::size_t>(first - missing.begin());
    }
    missing = missing.subspan(n_there);
    const std::size_t from = row(h, 0), to = row(h, n_prompt) + n_there;
    add_gathered_rows(keys_ + to * key_bytes_, keys_ + from * key_bytes_, key_bytes_, missing, copies);
    add_gathered_rows(values_ + to * value_bytes_, values_ + from * value_bytes_, value_bytes_, missing, copies);
    if (!memory_->is_host()) continue;  // a device takes all heads' at once
    memory_->copy(copies);              // the processor's memory holds what it copies
    copies.clear();
  }
  memory_->copy(copies);
  shown_ = Shown{.layer = layer_, .first_row = n_prompt, .entries = {entries.begin(), entries.end()}};
}

void StagingBuffer::begin_rows(int layer, std::int32_t first_position, std::int32_t n_rows) {
  begin_layer(layer);
  const std::int32_t first = first_position - first_position_;
  if (shown_ && (shown_->layer != layer || first < shown_->first_row)) shown_.reset();
  first_row_ = shown_ ? shown_->first_row : 0;
  n_before_.clear();
  runs_.clear();
  for (int h = 0; h < shape_.layer(layer).n_kv_head; ++h) {
    const std::size_t n_copies = shown_ ? shown_->entries[static_cast<std::size_t>(h)].size() : 0;
    n_before_.push_back(first - first_row_ + static_cast<std::int32_t>(n_copies));
    runs_.push_back(run_from(h, first_row_, n_before_.back() + n_rows));
  }
}

EntrySink::Head StagingBuffer::head(int kv_head) const {
  const auto h = static_cast<std::size_t>(kv_head);
  return {.entries = {.runs = std::span(&runs_[h], 1), .n_entries = runs_[h].n_entries}, .n_before = n_before_[h]};
}

HeadRows StagingBuffer::head_rows(int kv_head) const {
  HeadRows rows = {.n_entries = runs_[static_cast<std::size_t>(kv_head)].n_entries};
  for (std::int32_t entry = 0; entry < rows.n_entries; entry += kPageEntries) {
    const std::size_t first = row(kv_head, first_row_ + entry);
    rows.pages.push_back({.keys = keys_ + first * key_bytes_, .values = values_ + first * value_bytes_});
  }
  return rows;
}

std::size_t StagingBuffer::row(int kv_head, std::int32_t token) const {
  assert(kv_head >= 0 && kv_head < shape_.layer(layer_).n_kv_head && token >= 0 && token < n_tokens_);
  return static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(n_tokens_) + static_cast<std::size_t>(token);
}

kernels::EntryRun StagingBuffer::run(int kv_head, std::int32_t n_tokens) const {
  return run_from(kv_head, 0, n_tokens);
}

// The positions of copies are not theirs, which nobody asks for where all of them are seen.
kernels::EntryRun StagingBuffer::run_from(int kv_head, std::int32_t first, std::int32_t n_entries) const {
  assert(first >= 0 && n_entries >= 0 && n_entries <= n_tokens_ - first);
  const std::size_t first_row = row(kv_head, first);
  return {.keys = keys_ + first_row * key_bytes_,
          .values = values_ + first_row * value_bytes_,
          .positions = positions_.data() + first,
          .n_entries = n_entries,
          .key_type = shape_.key_type,
          .value_type = shape_.value_type};
}

std::byte* StagingBuffer::key_row(int kv_head, std::int32_t entry) {
  return keys_ + row(kv_head, first_row_ + entry) * key_bytes_;
}

std::byte* StagingBuffer::value_row(int kv_head, std::int32_t entry) {
  return values_ + row(kv_head, first_row_ + entry) * value_bytes_;
}

}  // namespace winnow
