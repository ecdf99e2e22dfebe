// Tells of cuts that are to be made before anything is computed.
#pragma once

#include <cstdint>
#include <span>

#include "winnow/session.h"

namespace winnow {

// A cut that is to be made.
struct PlannedCut {
  SessionOptions options;
  std::int32_t n_tokens;  // the session's tokens when it is cut
};

// Throws Error naming every one of the cuts that cannot be made, once, with its method, budget, length and reason.
void check_cuts(const Engine& engine, std::span<const PlannedCut> cuts);

// Returns a method with the window that the session's cut of a prompt of n_tokens gives it
// (eviction/cut/fitting_window.h).
EvictionOptions with_window_of_cut(const Session& session, const EvictionOptions& method, std::int32_t n_tokens);

}  // namespace winnow
