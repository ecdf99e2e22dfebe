// Cuts that are to be made, checked before anything is computed.
#pragma once

#include <cstdint>
#include <span>

#include "winnow/session.h"

namespace winnow {

struct PlannedCut {
  SessionOptions options;
  std::int32_t n_tokens;  // that the session has when it is cut
};

// Throws Error that names every one of them that cannot be made, once, with its method, budget, length and reason.
void check_cuts(const Engine& engine, std::span<const PlannedCut> cuts);

}  // namespace winnow
