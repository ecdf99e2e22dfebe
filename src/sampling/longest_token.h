// A bound on the text that a number of tokens can hold.
#pragma once

#include <cstddef>

#include "winnow/model.h"

namespace winnow {

// Returns the bytes of the longest token's text: n tokens hold no more than n times as many. Reads the whole
// vocabulary. Throws Error(kUnsupported) for a model without a tokenizer.
std::size_t longest_token_bytes(const Model& model);

}  // namespace winnow
