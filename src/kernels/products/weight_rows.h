// Rows of quantised weight matrices, as GGUF files hold them, to bfloat16: what a prompt's products are taken in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/products/weight_blocks.h"

namespace winnow::kernels {

// Whether weight_row_to_bf16 has the format; the others go through ggml's own conversion.
bool converts_to_bf16(WeightBlocks blocks);

// n weights, scaled in float32 and rounded to the nearest bfloat16, ties to even.
void weight_row_to_bf16(WeightBlocks blocks, const std::byte* src, std::uint16_t* dst, std::int64_t n);

}  // namespace winnow::kernels
