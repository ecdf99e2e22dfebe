// Engine::decode in two parts, for ranks that work on different steps at a time: rank 0 starts one for other sessions
// while the next rank computes this one.
#pragma once

#include <span>

#include "winnow/session.h"

namespace winnow {

// Steps under way that keep all ranks busy: 1 without others.
int n_steps_at_once(Engine& engine);

// The sessions can do nothing but go until the step is finished. Steps are finished in the order in which they were
// started; Engine::decode is for when none is under way. Both throw as it does, and what start_step throws has changed
// nothing.
void start_step(Engine& engine, std::span<Session* const> sessions, std::span<const Token> tokens);
void finish_step(Engine& engine);

}  // namespace winnow
