// Converts rows of quantised weight matrices in GGUF files to bfloat16, for the products of a prompt.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

// Returns whether weight_row_to_bf16 supports the format; other formats use ggml's own conversion.
bool converts_to_bf16(WeightBlocks blocks);

// Converts n weights, scaled in float32 and rounded to the nearest bfloat16, ties to even.
void weight_row_to_bf16(WeightBlocks blocks, const std::byte* src, std::uint16_t* dst, std::int64_t n);

}  // namespace winnow::kernels
