// The repeat prompts that KVzip's scores come from (arXiv 2505.23416, "Context Reconstruction").
#pragma once

#include <span>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// Returns the token sequences of KVzip's context reconstruction: for every 2,048 tokens of the context the request to
// repeat them, the last 8 tokens before them, and the tokens.
std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context);

}  // namespace winnow
