// Pages as kernels walk them: addresses of rows, which the processor may follow only in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "winnow/entry_type.h"

namespace winnow {

// The addresses of a page's rows from slot 0 on: kPageEntries keys and as many values. Kernels copy it as 16 bytes.
//
// Rows begin at multiples of 16 bytes. If they are codes, the low four bits of their address are their EntryType; the
// bits of float rows, whose type is that of the whole layer, are zero.
struct alignas(16) PageRows {
  std::byte* keys;
  std::byte* values;

  bool operator==(const PageRows&) const = default;
};

inline constexpr std::uintptr_t kRowTypeBits = 15;
inline std::byte* with_row_type(std::byte* rows, EntryType type) { return rows + static_cast<std::uintptr_t>(type); }
inline bool has_coded_rows(const std::byte* rows) {
  return (reinterpret_cast<std::uintptr_t>(rows) & kRowTypeBits) != 0;
}
inline bool has_codes(const PageRows& page) { return has_coded_rows(page.keys) || has_coded_rows(page.values); }

// The origin [key_dim] (float16, in the process's memory) that is subtracted from a head's keys that are codes; null:
// none. Shared by forks.
using KeyOrigin = std::shared_ptr<const std::vector<std::byte>>;

// The entries of one KV head. Entry e is in slot (first_slot + e) % kPageEntries of page
// (first_slot + e) / kPageEntries.
struct HeadRows {
  std::vector<PageRows> pages = {};
  std::int32_t first_slot = 0;
  std::int32_t n_entries = 0;
  KeyOrigin origin = {};
};

}  // namespace winnow
