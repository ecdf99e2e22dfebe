// The data that the page's script reads.
#pragma once

#include <string>

#include "study/analysis/analysis.h"

namespace winnow {

// Returns "snapkv, 20%".
std::string cut_name(const CutOutcome& cut);

// Returns JSON: heads [n_layer] (KV heads, 0 in a layer that is not cut), tokens [n_tokens] (texts), cuts [{name,
// method, budget, raised, bits}]. `raised` is the number of heads in 8 bits. `bits` is base64 of a row of bits for each
// KV head of each layer, one bit for each token, the lowest first; rows begin with a new byte.
std::string kept_data(const Analysis& analysis);

}  // namespace winnow
