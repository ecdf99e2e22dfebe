// Causal attention by products of bfloat16 with sums in float32, for entries of fewer bits than float32. Part of
// causal_attention, which chooses it by the current instruction set.
//
// Queries (times the softmax scale), keys, values and softmax weights are rounded to bfloat16; maxima, exponents and
// sums are float32. Against exact arithmetic a score is off by about 2^-9 of the products' root mean square, so an
// output or a weight by 1e-2 of its size where scores are of the order of 1, and log_sum_exp by as much as a score
// (3e-3 there).
#pragma once

#include <cstddef>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/simd/isa.h"

namespace winnow::kernels {

// Whether the current instruction set has the products. Entries of float32 never take this path: their results stay as
// exact as those of the other instruction sets. The number of rows has no say: what a row comes to is then the same
// bits whether it was read with a whole prompt or alone behind one that was kept.
bool prefers_bf16_attention(const AttentionShape& shape);

std::size_t bf16_attention_scratch_bytes(const AttentionShape& shape);

void bf16_attention(Bf16Unit unit, const AttentionShape& shape, const HeadEntries& entries, const QueryRows& rows,
                    const CausalOutput& output, std::span<std::byte> scratch);

}  // namespace winnow::kernels
