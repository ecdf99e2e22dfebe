// Causal attention by products of bfloat16 with sums in float32, for entries of fewer bits than float32. Part of
// causal_attention, which chooses it by the current instruction set.
//
// Queries (times the softmax scale), keys, values and softmax weights are rounded to bfloat16; maxima, exponents and
// sums are float32. Compared with exact arithmetic, a score has an error of about 2^-9 of the root mean square of its
// products. If scores are of the order of 1, an output or a weight has a relative error of 1e-2, and log_sum_exp and a
// score have an error of 3e-3.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/simd/isa.h"

namespace winnow::kernels {

// Returns whether entries of this shape are computed by these products: the current instruction set has them and the
// entries are not float32, whose results stay as exact as on other instruction sets. It does not depend on the number
// of rows, so a row without a sliding window has the same bits whether it is read with a whole prompt or alone after a
// kept one. With a window the blocks of keys begin where the first row of a call sees its first entry.
bool prefers_bf16_attention(const AttentionShape& shape);

// Returns the bytes of 64-byte-aligned scratch that bf16_attention needs.
std::size_t bf16_attention_scratch_bytes(const AttentionShape& shape);

// Computes causal_attention with this unit's products.
void bf16_attention(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    const CausalOutput& output, std::span<std::byte> scratch);

}  // namespace winnow::kernels
