// The rows that KVzip's scores come from.
#pragma once

#include <span>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// The token sequences of KVzip's reconstruction of a context: per 2,048 of its tokens the request to repeat it, the
// last 8 tokens of the part before, the part.
std::vector<std::vector<Token>> reconstruction_parts(const Model& model, std::span<const Token> context);

}  // namespace winnow
