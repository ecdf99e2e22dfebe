// How much text a number of tokens can hold.
#pragma once

#include <cstddef>

#include "winnow/model.h"

namespace winnow {

// Bytes of the longest token's text: n tokens hold no more than n times as many. Goes through the vocabulary. Throws
// Error(kUnsupported) for a model without a tokenizer.
std::size_t longest_token_bytes(const Model& model);

}  // namespace winnow
