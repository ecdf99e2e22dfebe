// The ranks of a run that mpirun, or a launcher like it, has started.
#pragma once

#include <memory>
#include <string>

#include "winnow/pipeline.h"

namespace winnow::mpi {

// How many processes the launcher says that it has started, and which this one is: by the environment, without MPI.
int launched_ranks();
int launched_rank();
// How many of them are on this machine.
int launched_here();

// The link of this process. Throws Error(kUnsupported) where winnow was built without MPI. Once in a process.
std::shared_ptr<PipelineLink> start();

// All ranks call it when they are done; what was sent has arrived then.
void finish();
// Ends the processes of all ranks with this exit code.
void give_up(int exit_code);

}  // namespace winnow::mpi
