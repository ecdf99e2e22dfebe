#include "device/block_allocator.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/round_up.h"

namespace winnow::device {

BlockAllocator::BlockAllocator(std::byte* begin, std::size_t bytes, std::size_t gap)
    : begin_(begin), bytes_(bytes), gap_(gap) {
  if (bytes > 0) blocks_.emplace(begin, Block{bytes, true});
}

std::byte* BlockAllocator::allocate(std::size_t bytes) {
  if (bytes > bytes_) return nullptr;
  const std::size_t taken = round_up(std::max<std::size_t>(bytes, 1) + gap_, kAlignment);
  if (taken > bytes_ - in_use_) return nullptr;
  for (auto& [address, block] : blocks_) {
    if (!block.is_free || block.bytes < taken) continue;
    if (block.bytes > taken) blocks_.emplace(address + taken, Block{block.bytes - taken, true});
    block = {taken, false};
    in_use_ += taken;
    return address;
  }
  return nullptr;
}

void BlockAllocator::free(std::byte* block) noexcept {
  auto found = blocks_.find(block);
  assert(found != blocks_.end() && !found->second.is_free);
  if (found == blocks_.end()) return;
  in_use_ -= found->second.bytes;
  found->second.is_free = true;
  const auto join_with_next = [&](auto first) {
    const auto next = std::next(first);
    if (next == blocks_.end() || !next->second.is_free) return;
    first->second.bytes += next->second.bytes;
    blocks_.erase(next);
  };
  join_with_next(found);
  if (found != blocks_.begin() && std::prev(found)->second.is_free) join_with_next(std::prev(found));
}

}  // namespace winnow::device
