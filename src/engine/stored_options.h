// A session's options as bytes, for its file and for other ranks.
#pragma once

#include <ostream>

#include "engine/stored_numbers.h"
#include "winnow/session.h"

namespace winnow {

// Writes options.
void put_options(std::ostream& out, const SessionOptions& options);
// Reads options. Throws Error(kBadFile) for numbers that no option has, and what EvictionOptions::parse and
// Budget::parse throw.
SessionOptions get_options(NumberReader& reader);

}  // namespace winnow
