// Measures of a head's keys as the model makes them, without LayerView::key_scales.
#pragma once

#include <span>

#include "winnow/entries.h"

namespace winnow {

// Both return a number for every stored entry, [n_entries]: the norm of its key, and the cosine between the key and the
// mean of the head's keys, each scaled to length 1. `scales`: the head's of LayerView::key_scales, [key_dim], or null.
void own_key_norms(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, const float* scales,
                   std::span<float> out);
void cosines_to_mean_key(const kernels::AttentionShape& shape, const kernels::HeadEntries& entries, const float* scales,
                         std::span<float> out);

}  // namespace winnow
