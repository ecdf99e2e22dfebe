// How one row (the key or the value of one token in one KV head) is stored in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace winnow {

enum class EntryType : std::uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0 };

// "f32", "f16", "bf16", "q8_0", "q4_0": the names that llama.cpp's -ctk and -ctv take.
std::string_view entry_type_name(EntryType type);

// Throws Error(kInvalidArgument) with the list of names.
EntryType parse_entry_type(std::string_view name);

// Bytes of a row of `head_dim` numbers. The block types need head_dim to be a multiple of 32.
std::size_t row_bytes(EntryType type, int head_dim);

}  // namespace winnow
