#include "cache/staging_buffer.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace winnow {
namespace {

// Each array starts on a cache line.
std::size_t round_up_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

// Positions come first: they are the same for all layers. Then those that take turns, then each that is shared.
std::vector<StagingBuffer::Layout> StagingBuffer::layouts(const CacheShape& shape, std::int32_t n_tokens) {
  const std::size_t first = round_up_to_line(static_cast<std::size_t>(n_tokens) * sizeof(std::int32_t));
  const auto place = [&](int layer, std::size_t at) -> Layout {
    const auto n_rows = static_cast<std::size_t>(shape.layer(layer).n_kv_head) * static_cast<std::size_t>(n_tokens);
    if (n_rows == 0) return {.keys_at = at, .values_at = at, .end = at};
    const std::size_t values_at = at + round_up_to_line(n_rows * shape.key_bytes(layer));
    return {.keys_at = at, .values_at = values_at, .end = values_at + n_rows * shape.value_bytes(layer)};
  };
  std::vector<Layout> all;
  std::size_t end = first;
  for (int l = 0; l < shape.n_layer(); ++l) {
    all.push_back(place(l, first));
    if (!shape.layer(l).is_shared) end = std::max(end, all.back().end);
  }
  for (int l = 0; l < shape.n_layer(); ++l) {
    if (!shape.layer(l).is_shared) continue;
    Layout& own = all[static_cast<std::size_t>(l)];
    own = place(l, round_up_to_line(end));
    end = own.end;
  }
  return all;
}

std::size_t StagingBuffer::bytes_for(const CacheShape& shape, std::int32_t n_tokens) {
  std::size_t bytes = 0;
  for (const Layout& layout : layouts(shape, n_tokens)) bytes = std::max(bytes, layout.end);
  return bytes;
}

StagingBuffer::StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                             std::shared_ptr<PagePool> pool)
    : shape_(shape),
      layouts_(layouts(shape, n_tokens)),
      n_tokens_(n_tokens),
      first_position_(first_position),
      bytes_(bytes_for(shape, n_tokens)) {
  assert(n_tokens > 0 && first_position >= 0);
  reservation_ = pool->reserve(bytes_);
  memory_ = MappedMemory(bytes_);
  positions_ = static_cast<std::int32_t*>(static_cast<void*>(memory_.data()));
  std::iota(positions_, positions_ + n_tokens, first_position);
  begin_layer(0);
}

void StagingBuffer::begin_layer(int layer) {
  layer_ = layer;
  const Layout& sizes = layouts_[static_cast<std::size_t>(layer)];
  keys_ = memory_.data() + sizes.keys_at;
  values_ = memory_.data() + sizes.values_at;
  const bool has_entries = shape_.layer(layer).n_kv_head > 0;
  key_bytes_ = has_entries ? shape_.key_bytes(layer) : 0;
  value_bytes_ = has_entries ? shape_.value_bytes(layer) : 0;
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

std::size_t StagingBuffer::row(int kv_head, std::int32_t token) const {
  assert(kv_head >= 0 && kv_head < shape_.layer(layer_).n_kv_head && token >= 0 && token < n_tokens_);
  return static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(n_tokens_) + static_cast<std::size_t>(token);
}

kernels::EntryRun StagingBuffer::run(int kv_head, std::int32_t n_tokens) const {
  assert(n_tokens >= 0 && n_tokens <= n_tokens_);
  const std::size_t first = row(kv_head, 0);
  return {.keys = keys_ + first * key_bytes_,
          .values = values_ + first * value_bytes_,
          .positions = positions_,
          .n_entries = n_tokens,
          .key_type = shape_.key_type,
          .value_type = shape_.value_type};
}

std::byte* StagingBuffer::key_row(int kv_head, std::int32_t token) { return keys_ + row(kv_head, token) * key_bytes_; }

std::byte* StagingBuffer::value_row(int kv_head, std::int32_t token) {
  return values_ + row(kv_head, token) * value_bytes_;
}

}  // namespace winnow
