// How fast an engine reads, before a run begins: what goes together is bounded by the time that it takes.
#pragma once

#include <cstdint>

#include "winnow/session.h"

namespace winnow::eval {

// Tokens of prompts that the engine reads in a minute, by a short one that is read in some seconds at most; without
// bound where there is no room for it.
std::int64_t tokens_in_a_minute(Engine& engine, std::int32_t n_ctx);

}  // namespace winnow::eval
