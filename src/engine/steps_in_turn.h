// Engine::decode in two parts, for ranks that work on different steps at a time: rank 0 starts a step of other sessions
// while the next rank computes this one.
#pragma once

#include <span>

#include "winnow/session.h"

namespace winnow {

// Returns how many steps under way keep all ranks busy: 1 with one rank.
int n_steps_at_once(Engine& engine);

// Start a step, and finish the oldest one. Until then its sessions can only be destroyed. Engine::decode may be called
// when no step is under way. Both throw what Engine::decode throws; if start_step throws, nothing has changed.
void start_step(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
void finish_step(Engine& engine);

}  // namespace winnow
