#include "cache/entry_copies.h"

#include <algorithm>
#include <span>

#include "cache/memory_block.h"
#include "kernels/entries/run_cursor.h"

namespace winnow {
namespace {

constexpr std::size_t kLarge = std::size_t{256} << 10;    // a part of so many bytes comes by itself
constexpr std::size_t kGathered = std::size_t{16} << 20;  // bytes that are gathered at a time

}  // namespace

void MemoryParts::add(const std::byte* from, std::size_t bytes) {
  bytes_ += bytes;
  if (!parts_.empty() && parts_.back().from + parts_.back().bytes == from) {
    parts_.back().bytes += bytes;
  } else {
    parts_.push_back({.from = from, .bytes = bytes});
  }
}

void MemoryParts::read(const std::shared_ptr<EntryMemory>& memory, std::byte* to) const {
  MemoryBlock gathered;
  std::span<const Part> parts = parts_;
  while (!parts.empty()) {
    if (parts.size() == 1 || parts.front().bytes >= kLarge) {
      memory->read(to, parts.front().from, parts.front().bytes);
      to += parts.front().bytes;
      parts = parts.subspan(1);
      continue;
    }
    std::size_t n = 0, bytes = 0;
    for (; n < parts.size() && parts[n].bytes < kLarge && bytes + parts[n].bytes <= kGathered; ++n) {
      bytes += parts[n].bytes;
    }
    if (gathered.bytes() < bytes) gathered = MemoryBlock(memory, bytes);
    std::vector<ByteCopy> copies;
    copies.reserve(n);
    std::byte* next = gathered.data();
    for (const Part& part : parts.first(n)) {
      copies.push_back({.to = next, .from = part.from, .bytes = part.bytes});
      next += part.bytes;
    }
    memory->copy(copies);
    memory->read(to, gathered.data(), bytes);
    to += bytes;
    parts = parts.subspan(n);
  }
}

EntryCopies::EntryCopies(const std::shared_ptr<EntryMemory>& memory, const kernels::HeadEntries& entries, int key_dim,
                         int value_dim)
    : runs_(entries.runs.begin(), entries.runs.end()), n_entries_(entries.n_entries) {
  if (!memory->is_host()) take(memory, key_dim, value_dim);
}

EntryCopies EntryCopies::of_keys(const std::shared_ptr<EntryMemory>& memory, const kernels::HeadEntries& entries,
                                 int key_dim, int value_dim, std::int32_t first, std::int32_t last) {
  EntryCopies copies;
  kernels::RunCursor cursor(entries);
  for (std::int32_t done = first; done < last; done += copies.runs_.back().n_entries) {
    const kernels::RunCursor::Piece piece = cursor.seek(done);
    copies.runs_.push_back(
        kernels::part_of(*piece.run, piece.offset, std::min(piece.count, last - done), key_dim, value_dim));
  }
  copies.n_entries_ = last - first;
  if (!memory->is_host()) copies.take(memory, key_dim, 0);
  return copies;
}

// Replaces the runs' rows by copies.
void EntryCopies::take(const std::shared_ptr<EntryMemory>& memory, int key_dim, int value_dim) {
  MemoryParts parts;
  for (const kernels::EntryRun& run : runs_) {
    const auto n = static_cast<std::size_t>(run.n_entries);
    parts.add(run.keys, n * row_bytes(run.key_type, key_dim));
    if (value_dim > 0) parts.add(run.values, n * row_bytes(run.value_type, value_dim));
  }
  rows_ = std::make_unique_for_overwrite<std::byte[]>(parts.bytes());
  parts.read(memory, rows_.get());
  const std::byte* next = rows_.get();
  for (kernels::EntryRun& run : runs_) {
    const auto n = static_cast<std::size_t>(run.n_entries);
    run.keys = next;
    next += n * row_bytes(run.key_type, key_dim);
    if (value_dim == 0) continue;
    run.values = next;
    next += n * row_bytes(run.value_type, value_dim);
  }
}

}  // namespace winnow
