// The comparison of methods.
#pragma once

#include "winnow/eviction.h"

namespace winnow {

// Returns true if two methods keep the same entries, however they are written: they have the same parts, and the same
// values of all options that these read.
bool is_same_method(const EvictionOptions& a, const EvictionOptions& b);

}  // namespace winnow
