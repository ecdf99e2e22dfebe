// What the kernels get of a model's layer.
#pragma once

#include "kernels/attention/attention.h"
#include "model/model_impl.h"
#include "winnow/entry_type.h"

namespace winnow {

// Of a layer with attention.
kernels::AttentionShape attention_shape(const Model::Impl& model, int layer, EntryType key_type, EntryType value_type);

}  // namespace winnow
