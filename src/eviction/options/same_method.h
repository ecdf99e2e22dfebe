// Whether two methods are one.
#pragma once

#include "winnow/eviction.h"

namespace winnow {

// Whether the two choose alike, however they are written: the same parts, and the same values of all that these read.
bool is_same_method(const EvictionOptions& a, const EvictionOptions& b);

}  // namespace winnow
