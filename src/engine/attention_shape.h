// The shape that attention kernels need of a model's layer.
#pragma once

#include "kernels/attention/attention.h"
#include "model/model_impl.h"
#include "winnow/entry_type.h"

namespace winnow {

// Returns the shape of a layer with attention: dimensions, entry types, scale, window, soft cap and sink logits.
kernels::AttentionShape attention_shape(const Model::Impl& model, int layer, EntryType key_type, EntryType value_type);

}  // namespace winnow
