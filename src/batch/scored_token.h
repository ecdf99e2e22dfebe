// A token's probability in the model's own distribution.
#pragma once

#include <span>

#include "winnow/batch.h"
#include "winnow/model.h"

namespace winnow {

// Returns a token with its log probability and the n likeliest ones of the model's vocabulary by the logits [n_vocab]
// before it. Without logits the probability is NaN, and there are no likeliest ones.
BatchToken scored_token(const Model& model, int answer, Token token, std::span<const float> logits, int n);

}  // namespace winnow
