// Measures how fast an engine reads before a run begins, because the size of a batch is bounded by the time that it
// takes.
#pragma once

#include <cstdint>

#include "winnow/session.h"

namespace winnow::eval {

// Returns the prompt tokens that the engine reads in a minute, measured on a short prompt that takes some seconds at
// most; the greatest integer if there is no memory for it.
std::int64_t tokens_in_a_minute(Engine& engine, std::int32_t n_ctx);

}  // namespace winnow::eval
