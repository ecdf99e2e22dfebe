#include "cache/staging_buffer.h"

#include <cassert>
#include <numeric>

namespace winnow {
namespace {

// Each array starts on a cache line.
std::size_t round_up_to_line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

StagingBuffer::Layout StagingBuffer::layout(const CacheShape& shape, std::int32_t n_tokens) {
  const std::size_t n_rows = static_cast<std::size_t>(shape.n_kv_head) * static_cast<std::size_t>(n_tokens);
  const std::size_t values_at = round_up_to_line(n_rows * row_bytes(shape.key_type, shape.head_dim));
  const std::size_t positions_at = values_at + round_up_to_line(n_rows * row_bytes(shape.value_type, shape.head_dim));
  return {.values_at = values_at,
          .positions_at = positions_at,
          .bytes = positions_at + static_cast<std::size_t>(n_tokens) * sizeof(std::int32_t)};
}

std::size_t StagingBuffer::bytes_for(const CacheShape& shape, std::int32_t n_tokens) {
  return layout(shape, n_tokens).bytes;
}

StagingBuffer::StagingBuffer(const CacheShape& shape, std::int32_t n_tokens, std::int32_t first_position,
                             std::shared_ptr<PagePool> pool)
    : shape_(shape),
      n_tokens_(n_tokens),
      key_bytes_(row_bytes(shape.key_type, shape.head_dim)),
      value_bytes_(row_bytes(shape.value_type, shape.head_dim)) {
  assert(n_tokens > 0 && first_position >= 0);
  const auto [values_at, positions_at, bytes] = layout(shape, n_tokens);
  bytes_ = bytes;
  reservation_ = pool->reserve(bytes_);
  memory_ = MappedMemory(bytes_);

  keys_ = memory_.data();
  values_ = memory_.data() + values_at;
  positions_ = static_cast<std::int32_t*>(static_cast<void*>(memory_.data() + positions_at));
  std::iota(positions_, positions_ + n_tokens, first_position);
}

std::size_t StagingBuffer::row(int kv_head, std::int32_t token) const {
  assert(kv_head >= 0 && kv_head < shape_.n_kv_head && token >= 0 && token < n_tokens_);
  return static_cast<std::size_t>(kv_head) * static_cast<std::size_t>(n_tokens_) + static_cast<std::size_t>(token);
}

kernels::EntryRun StagingBuffer::run(int kv_head, std::int32_t n_tokens) const {
  assert(n_tokens >= 0 && n_tokens <= n_tokens_);
  const std::size_t first = row(kv_head, 0);
  return {.keys = keys_ + first * key_bytes_,
          .values = values_ + first * value_bytes_,
          .positions = positions_,
          .n_entries = n_tokens};
}

std::byte* StagingBuffer::key_row(int kv_head, std::int32_t token) { return keys_ + row(kv_head, token) * key_bytes_; }

std::byte* StagingBuffer::value_row(int kv_head, std::int32_t token) {
  return values_ + row(kv_head, token) * value_bytes_;
}

}  // namespace winnow
