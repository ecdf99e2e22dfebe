// How one row (the key or the value of one token in one KV head) is stored in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "winnow/api.h"

namespace WINNOW_API winnow {

enum class EntryType : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kR4, kR3 };

// All of them, in the order in which to show them.
std::span<const EntryType> entry_types();

// "f32", "f16", "bf16", "q8_0", "q4_0": the names that llama.cpp's -ctk and -ctv take; and "r4", "r3": rotated, then 4
// or 3 bits a number from a codebook.
std::string_view entry_type_name(EntryType type);

// All names, for people: "f32, f16, ...".
std::string entry_type_names();

// Throws Error(kInvalidArgument) with the list of names.
EntryType parse_entry_type(std::string_view name);

// Bytes of a row of `head_dim` numbers. q8_0 and q4_0 need head_dim to be a multiple of 32, r4 and r3
// of 16. Throws Error(kUnsupported).
std::size_t row_bytes(EntryType type, int head_dim);

}  // namespace winnow
