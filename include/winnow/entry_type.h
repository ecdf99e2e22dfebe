// The number formats in which the cache stores a row: the key or the value of one token in one KV head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// A row's number format: f32, f16 and bf16 are floats; q8_0 and q4_0 are ggml's blocks of 32 numbers with a scale; r4
// and r3 are a Hadamard rotation of the row, then 4 or 3 bits a number from a codebook.
enum class EntryType : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kR4, kR3 };

// Returns all types, in the order in which to show them.
std::span<const EntryType> entry_types();

// Returns a type's name. "f32", "f16", "bf16", "q8_0" and "q4_0" are the names that llama.cpp's -ctk and -ctv take;
// "r4" and "r3" are winnow's own.
std::string_view entry_type_name(EntryType type);

// Returns all names as a list for people: "f32, f16, ...".
std::string entry_type_names();

// Returns the type of a name. Throws Error(kInvalidArgument) with the list of names for any other.
EntryType parse_entry_type(std::string_view name);

// Returns the bytes of a row of `head_dim` numbers. Throws Error(kUnsupported) unless head_dim is a multiple of 32 for
// q8_0 and q4_0, of 16 for r4 and r3.
std::size_t row_bytes(EntryType type, int head_dim);

}  // namespace winnow
