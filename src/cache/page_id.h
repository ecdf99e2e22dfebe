// The number of a page of KV entries, independent of the memory that holds it. Page tables (block tables) consist of
// these numbers. Sequences that share a page hold the same number.
#pragma once

#include <cstdint>

namespace winnow {

enum class PageId : std::uint32_t {};

inline constexpr PageId kNoPage{UINT32_MAX};

}  // namespace winnow
