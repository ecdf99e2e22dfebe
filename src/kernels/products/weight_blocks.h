// The block formats of quantised weights in GGUF files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow::kernels {

// The ggml formats that have products or conversions here; all others are left to ggml.
enum class WeightBlocks {
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4
};

// The sizes of a format.
struct WeightBlocksInfo {
  WeightBlocks blocks;
  std::string_view name;   // ggml's
  std::int64_t n_weights;  // weights of one block: a row's length is a multiple of it
  std::size_t n_bytes;     // of one block
  std::size_t n_head;      // bytes before its dwords; other bytes that fill no dword come after these
};

inline constexpr WeightBlocksInfo kWeightBlocks[] = {
    {WeightBlocks::kQ4_0, "q4_0", 32, 18, 2},     {WeightBlocks::kQ4_1, "q4_1", 32, 20, 0},
    {WeightBlocks::kQ5_0, "q5_0", 32, 22, 2},     {WeightBlocks::kQ5_1, "q5_1", 32, 24, 0},
    {WeightBlocks::kQ8_0, "q8_0", 32, 34, 2},     {WeightBlocks::kQ2_K, "q2_K", 256, 84, 0},
    {WeightBlocks::kQ3_K, "q3_K", 256, 110, 0},   {WeightBlocks::kQ4_K, "q4_K", 256, 144, 0},
    {WeightBlocks::kQ5_K, "q5_K", 256, 176, 0},   {WeightBlocks::kQ6_K, "q6_K", 256, 210, 0},
    {WeightBlocks::kIQ4_NL, "iq4_nl", 32, 18, 2}, {WeightBlocks::kIQ4_XS, "iq4_xs", 256, 136, 0},
    {WeightBlocks::kMXFP4, "mxfp4", 32, 17, 1},
};

constexpr const WeightBlocksInfo& weight_blocks_info(WeightBlocks blocks) {
  return kWeightBlocks[static_cast<std::size_t>(blocks)];
}

// Returns the format with this ggml name ("q4_1"); nullopt if it is not supported here.
constexpr std::optional<WeightBlocks> weight_blocks(std::string_view ggml_name) {
  for (const WeightBlocksInfo& info : kWeightBlocks) {
    if (info.name == ggml_name) return info.blocks;
  }
  return std::nullopt;
}

}  // namespace winnow::kernels
