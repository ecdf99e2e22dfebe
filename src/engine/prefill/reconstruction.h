// These functions repeat a prompt, for the scores of methods that ask which entries that takes: by KVzip's pass (arXiv
// 2505.23416, "Context Reconstruction"), or by one that begins in a later layer, which is winnow's own.
//
// A row of the repeat looks up what follows its token. What its hidden state is in the first layers depends on the
// tokens just before it, which are those of the prompt: so the rows of the late repeat begin after these layers, with
// the prompt's own hidden states and without a request, and in the layers before it the prompt's own queries are shown
// as the repeat's, rotated to the positions after the prompt.
#pragma once

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

// Makes of a layer's own rows of a prompt, q [n_tokens][n_head][key_dim] and their log-sum-exps [n_tokens][n_head],
// those of a repeat: each sees the whole prompt from a position after it, and what it saw when the prompt was read.
void replay_rows(const LayerView& view, std::span<float> q, std::span<float> log_sum_exp,
                 const ParallelFor& parallel_for);

}  // namespace winnow
