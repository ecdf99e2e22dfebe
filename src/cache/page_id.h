// The number by which a page of KV entries is known above the memory that holds it: what a page table (a block table)
// consists of. Sequences that share a page hold the same number.
#pragma once

#include <cstdint>

namespace winnow {

enum class PageId : std::uint32_t {};

inline constexpr PageId kNoPage{UINT32_MAX};

}  // namespace winnow
