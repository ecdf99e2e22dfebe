// The size of CriticalKV's first stage.
#pragma once

#include <cstdint>

#include "winnow/eviction.h"

namespace winnow {

// Returns the number of a head's entries that are chosen by attention alone: floor(first-stage * budget), where the
// budget does not count protected entries.
std::int64_t first_stage_size(std::int64_t budget, const EvictionOptions& options);

}  // namespace winnow
