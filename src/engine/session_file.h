// Sessions on disk: one file with a checksum, streamed both ways, so that neither needs a second copy of the session.
// Of a model over several ranks the file is rank 0's, and the same that one process would write: any number of ranks
// can load it. All ranks make these calls with the engine's mutex held, and all get the same error.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_impl.h"

namespace winnow {

// Throws Error(kIo); the file of that name, if any, is then as before.
void save_session(const Session::Impl& session, const std::string& path);

// Throws Error: kNotFound, kBadFile (damaged, another format version, another model), kOutOfMemory.
std::unique_ptr<Session::Impl> load_session(std::shared_ptr<Engine> engine, const std::string& path);

}  // namespace winnow
