// Sessions on disk: one file with a checksum, streamed both ways, so that neither way needs a second copy of the
// session. With several ranks the file is rank 0's and equals the one that one process would write: any number of ranks
// can load it. All ranks make these calls with the engine's mutex held, and all get the same error.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_impl.h"

namespace winnow {

// Writes the session to the file. Throws Error(kIo) and then leaves the file of that name, if any, as it was.
void save_session(const Session::Impl& session, const std::string& path);

// Reads a session from the file. Throws Error: kNotFound, kIo, kBadFile (damaged, another format version, another
// model), kOutOfMemory.
std::unique_ptr<Session::Impl> load_session(std::shared_ptr<Engine> engine, const std::string& path);

}  // namespace winnow
