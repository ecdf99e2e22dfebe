#include "winnow/entry_type.h"

#include <array>
#include <string>

#include "kernels/entries/rotated_codes.h"
#include "winnow/error.h"

namespace winnow {
namespace {

struct TypeInfo {
  EntryType type;
  std::string_view name;
  int block;          // numbers per block
  std::size_t bytes;  // bytes per block
};

// q8_0 and q4_0 include a float16 scale, then 32 numbers of 8 or 4 bits. r4 and r3 are listed without their scales, one
// for each code_block().
constexpr std::array<TypeInfo, 7> kTypes = {{
    {EntryType::kF32, "f32", 1, 4},
    {EntryType::kF16, "f16", 1, 2},
    {EntryType::kBF16, "bf16", 1, 2},
    {EntryType::kQ8_0, "q8_0", 32, 34},
    {EntryType::kQ4_0, "q4_0", 32, 18},
    {EntryType::kR4, "r4", 16, 8},
    {EntryType::kR3, "r3", 16, 6},
}};

const TypeInfo& info(EntryType type) { return kTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::span<const EntryType> entry_types() {
  static constexpr auto kAll = [] {
    std::array<EntryType, kTypes.size()> types{};
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = kTypes[i].type;
    return types;
  }();
  return kAll;
}

std::string_view entry_type_name(EntryType type) { return info(type).name; }

std::string entry_type_names() {
  std::string names;
  for (const TypeInfo& type : kTypes) (names += names.empty() ? "" : ", ") += type.name;
  return names;
}

EntryType parse_entry_type(std::string_view name) {
  for (const TypeInfo& candidate : kTypes) {
    if (candidate.name == name) return candidate.type;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "'" + std::string(name) + "' is not a type for cache entries: choose one of " + entry_type_names());
}

std::size_t row_bytes(EntryType type, int head_dim) {
  const TypeInfo& t = info(type);
  if (head_dim <= 0 || head_dim % t.block != 0) {
    throw Error(ErrorCode::kUnsupported, "cache entries of type " + std::string(t.name) +
                                             " need a head size that is a multiple of " + std::to_string(t.block) +
                                             ", and this model's is " + std::to_string(head_dim) +
                                             ": choose f16 or f32");
  }
  const bool has_codes = kernels::code_bits(type) > 0;
  const int n_scales = has_codes ? head_dim / kernels::code_block(head_dim) : 0;
  return static_cast<std::size_t>(head_dim / t.block) * t.bytes + static_cast<std::size_t>(n_scales) * 2;
}

}  // namespace winnow
