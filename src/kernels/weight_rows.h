// Rows of quantised weight matrices, as GGUF files hold them, to bfloat16: what a prompt's products are taken in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow::kernels {

// Block formats of ggml that models are mostly stored in. The others go through ggml's own conversion.
enum class WeightBlocks { kQ4_0, kQ4_1, kQ8_0, kQ4_K, kQ6_K };

// By ggml's name of the type ("q4_1"); nothing for one that is not here.
std::optional<WeightBlocks> weight_blocks(std::string_view ggml_name);

// Weights of one block: a row's length is a multiple of it.
int block_weights(WeightBlocks blocks);

// n weights, scaled in float32 and rounded to the nearest bfloat16, ties to even.
void weight_row_to_bf16(WeightBlocks blocks, const std::byte* src, std::uint16_t* dst, std::int64_t n);

}  // namespace winnow::kernels
