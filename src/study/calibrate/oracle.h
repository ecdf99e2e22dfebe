// LU-KV's oracle importance on real prompts: how much later tokens turn out to need each entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "winnow/layer_view.h"
#include "winnow/session.h"

namespace winnow {

// Returns for one layer the max over the view's last n_rows queries of A[k][j] || v_j W_O[h] ||_2, the group's largest,
// for the first n_context tokens: [n_kv_head][n_context]. The view must hold every token's entry, and W_O.
std::vector<std::vector<double>> oracle_importance(const LayerView& view, std::int32_t n_context, int n_rows,
                                                   const ParallelFor& parallel_for);

// Returns for one layer the mean attention of the same queries, averaged over the group: [n_kv_head][n_context].
std::vector<std::vector<double>> future_attention(const LayerView& view, std::int32_t n_context, int n_rows,
                                                  const ParallelFor& parallel_for);

// Feeds the most likely token up to n times; an end token is the last one. Returns the tokens fed, at least one.
std::vector<Token> decode_greedily(Session& session, int n);

}  // namespace winnow
