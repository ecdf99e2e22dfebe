// These functions repeat a prompt, for the scores of methods that ask which entries that takes: by KVzip's pass (arXiv
// 2505.23416, "Context Reconstruction"), or by one that begins in a later layer, which is winnow's own.
//
// A row of the repeat looks up what follows its token. What its hidden state is in the first layers depends on the
// tokens just before it, which are those of the prompt: so the rows of the late repeat begin after these layers, with
// the prompt's own hidden states and without a request, and in the layers before it the prompt's own queries are shown
// as the repeat's, rotated to the positions after the prompt. They attend to what lies near the tokens that they
// repeat, and of the rest of the prompt to what running text attends to most: the time is linear in the prompt but for
// that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "winnow/layer_view.h"
#include "winnow/model.h"

namespace winnow {

// Returns the token sequences of KVzip's context reconstruction: for every 2,048 tokens of the context the request to
// repeat them, the last 8 tokens before them, and the tokens.
std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context);

// Returns the late repeat of a model's prompts, which begins after the first sixth of the layers.
LateRepeat late_repeat(const ModelSpec& spec);

// Returns the entries of a layer that the rows of a late repeat see wherever the tokens are that they repeat: of every
// head the eighth that the view's reference rows attend to most, and the first and last ones. [n_kv_head], ascending.
std::vector<std::vector<std::int32_t>> entries_seen_everywhere(const LayerView& view, const ParallelFor& parallel_for);
// Return these with those near a part: what its rows see, [n_kv_head]. The first puts those last that are only near the
// part, since a layer's parts have the others in common; the second returns all in ascending order.
std::vector<std::vector<std::int32_t>> entries_seen_near_last(std::span<const std::vector<std::int32_t>> everywhere,
                                                              const RepeatedPart& part);
std::vector<std::vector<std::int32_t>> entries_seen(std::span<const std::vector<std::int32_t>> everywhere,
                                                    const RepeatedPart& part);
// Returns how many entries of a prompt of n_tokens the rows of a part see at most: all of a short one.
std::int32_t most_entries_seen(const LateRepeat& repeat, std::int32_t n_tokens);
// Returns the entries behind the prompt's that its late repeat needs room for in the layer that is read: a part's own,
// and copies of those that it sees, where these are not all.
std::int32_t most_entries_behind(const LateRepeat& repeat, std::int32_t n_tokens);

// Makes of a layer's own rows of a prompt, q [n_tokens][n_head][key_dim] and their log-sum-exps [n_tokens][n_head],
// those of a repeat, for the tokens of a part: each sees the view's entries from a position after the prompt, and what
// it saw when the prompt was read.
void replay_rows(const LayerView& view, const RepeatedPart& part, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for);

}  // namespace winnow
