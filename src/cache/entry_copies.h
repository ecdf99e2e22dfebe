// Copies of entries that lie in a device's memory, for the processor to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/entry_memory.h"
#include "winnow/entries.h"

namespace winnow {

// A list of bytes of an EntryMemory.
class MemoryParts {
 public:
  // Adds bytes to the end; neighbours become one part.
  void add(const std::byte* from, std::size_t bytes);
  std::size_t bytes() const { return bytes_; }
  // Copies the parts to `to` in the process's memory, one after the other. Small parts are gathered in the memory first
  // and come in one piece. Throws Error(kOutOfMemory) if there is no room for that.
  void read(const std::shared_ptr<EntryMemory>& memory, std::byte* to) const;

 private:
  struct Part {
    const std::byte* from;
    std::size_t bytes;
  };
  std::vector<Part> parts_;
  std::size_t bytes_ = 0;
};

// A head's entries in the process's memory.
class EntryCopies {
 public:
  // Copies all keys and values, unless the processor can read them where they are.
  EntryCopies(const std::shared_ptr<EntryMemory>& memory, const kernels::HeadEntries& entries, int key_dim,
              int value_dim);
  // Returns the entries [first, last), whose values are not to be read.
  static EntryCopies of_keys(const std::shared_ptr<EntryMemory>& memory, const kernels::HeadEntries& entries,
                             int key_dim, int value_dim, std::int32_t first, std::int32_t last);
  EntryCopies(EntryCopies&&) = default;
  EntryCopies& operator=(EntryCopies&&) = default;

  // Returns the entries; valid as long as this and the original entries are.
  kernels::HeadEntries entries() const { return {.runs = runs_, .n_entries = n_entries_}; }

 private:
  EntryCopies() = default;
  void take(const std::shared_ptr<EntryMemory>& memory, int key_dim, int value_dim);

  std::vector<kernels::EntryRun> runs_;
  std::int32_t n_entries_ = 0;
  std::unique_ptr<std::byte[]> rows_;
};

}  // namespace winnow
