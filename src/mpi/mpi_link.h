// The link between the ranks of a run that mpirun, or a launcher like it, has started.
#pragma once

#include <memory>
#include <string>

#include "winnow/pipeline.h"

namespace winnow::mpi {

// Return how many processes the launcher has started and the rank of this one, according to the environment, without
// MPI; 1 and 0 without a launcher.
int launched_ranks();
int launched_rank();
// Returns how many of them are on this machine.
int launched_here();

// Starts MPI and returns the link of this process. Called at most once in a process. Throws Error(kUnsupported) if
// winnow was built without MPI, or if MPI cannot be called from several threads.
std::shared_ptr<PipelineLink> start();

// Waits until MPI has completed all sends, then ends MPI. All ranks call it when they are done.
void finish();
// Ends the processes of all ranks with this exit code.
void give_up(int exit_code);

}  // namespace winnow::mpi
