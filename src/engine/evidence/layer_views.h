// Shows a sequence's layers to those who judge its entries (eviction policies, analyses, calibration), and does what
// they decide.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "engine/engine_impl.h"
#include "eviction/cut.h"

namespace winnow {

// The view of one layer without anybody's queries; `heads` [n_kv_head] must outlive it.
LayerView layer_view(const Engine::Impl& engine, const CacheShape& shape, int layer,
                     std::span<const kernels::HeadEntries> heads, std::int32_t n_tokens);

// The slices W_O[h] of a layer as [n_head][value_dim][n_embd] float32, from the file's [n_embd rows][n_head *
// value_dim].
std::vector<float> output_projection(Engine::Impl& engine, int layer);

// The view of a layer as it is stored in a session, with at most max_window_rows of its last queries. `heads` receives
// the entries and `w_o` the output projection where the session's evidence asks for it; both must outlive the view.
LayerView stored_layer_view(Session::Impl& session, int layer, std::vector<kernels::HeadEntries>& heads,
                            std::vector<float>& w_o, int max_window_rows = std::numeric_limits<int>::max());

// Drops from stored layers what a cut does not keep, heads side by side.
void keep_entries(RaggedCache& cache, std::span<const LayerCut> cuts, const ParallelFor& parallel_for);

}  // namespace winnow
