// Pages as kernels walk them: addresses of rows, which the processor may follow only in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow {

// The addresses of a page's rows from slot 0 on: kPageEntries keys and as many values. Kernels copy it as 16 bytes.
struct alignas(16) PageRows {
  std::byte* keys;
  std::byte* values;

  bool operator==(const PageRows&) const = default;
};

// The entries of one KV head. Entry e is in slot (first_slot + e) % kPageEntries of page
// (first_slot + e) / kPageEntries.
struct HeadRows {
  std::vector<PageRows> pages = {};
  std::int32_t first_slot = 0;
  std::int32_t n_entries = 0;
};

}  // namespace winnow
