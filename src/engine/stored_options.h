// A session's options as bytes: in its file, and on their way to other ranks.
#pragma once

#include <ostream>

#include "engine/stored_numbers.h"
#include "winnow/session.h"

namespace winnow {

void put_options(std::ostream& out, const SessionOptions& options);
// Throws Error(kBadFile) for numbers that no option has, and what EvictionOptions::parse and Budget::parse throw.
SessionOptions get_options(NumberReader& reader);

}  // namespace winnow
