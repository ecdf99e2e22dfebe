// The size of CriticalKV's first stage.
#pragma once

#include <cstdint>

#include "winnow/eviction.h"

namespace winnow {

// Of a head's budget, protected entries not counted: floor(first-stage * budget).
std::int64_t first_stage_size(std::int64_t budget, const EvictionOptions& options);

}  // namespace winnow
