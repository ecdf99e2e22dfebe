// Powers of two that balance the queries and keys of layers whose keys have biases.
#pragma once

#include <vector>

#include "model/layer_spec.h"
#include "model/weights.h"

namespace winnow {

// Factors on a layer's queries and keys, before RoPE. All are powers of two, alike in the two dimensions of a pair that
// RoPE rotates, and those of a KV head's queries are the inverses of its keys': so they change no score.
struct BalancedPairs {
  std::vector<float> query;  // [n_head * key_dim]
  std::vector<float> key;    // [n_kv_head * key_dim]
};

// Says whether a layer's queries and keys have such factors: its keys have biases, which alone make pairs differ by
// more than a few times, and no norm.
bool has_balanced_pairs(const LayerSpec& spec, const LayerWeights& weights);

// Returns the factors with which rows of codes keep most of a layer's keys. A row's numbers share their scale, so that
// codes are wrong by about as much in each of them: with d on a pair of the keys, the error of a score is least at
// d^2 = |q| / |k| (the Cauchy-Schwarz inequality over pairs), the root mean squares of the pair. They are estimated
// from the rows of the matrices and the biases. Of a key's bias only what RoPE turns counts, as the rest is the same in
// all keys and is taken out as their origin (docs/internals/cache.md).
//
// Empty for a layer that has none, or whose factors would all be 1. All rows of the layer's wq and wk are read.
BalancedPairs balanced_pairs(const LayerSpec& spec, const LayerWeights& weights);

}  // namespace winnow
