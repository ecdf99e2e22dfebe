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
#include <optional>
#include <span>
#include <vector>

#include "engine/forward_plan.h"
#include "winnow/layer_view.h"
#include "winnow/model.h"

namespace winnow {

// The rows that go through the layers after a prompt's own.
struct PromptRepeats {
  // KVzip's: for every 2,048 tokens of the prompt the request to repeat them, the last 8 tokens before them, and the
  // tokens.
  std::vector<std::vector<Token>> parts = {};
  std::optional<LateRepeat> late = std::nullopt;

  // Return the number of these rows for a prompt of n_tokens tokens, and the most entries that they need room for
  // behind the prompt's in the layer that is read.
  std::int32_t n_rows(std::int32_t n_tokens) const;
  std::int32_t n_entries_behind(std::int32_t n_tokens) const;
};
// Returns the repeats of a prompt that these needs ask for. A late one begins after the first sixth of the layers.
PromptRepeats prompt_repeats(const Model& model, const EvidenceNeeds& needs, std::span<const Token> prompt);

}  // namespace winnow
