#include <charconv>
#include <cstdlib>
#include <cstring>

#include "mpi/mpi_link.h"

namespace winnow::mpi {
namespace {

// Returns the number in the first variable that is set, or else `otherwise`. Open MPI's mpirun sets `open_mpi`; those
// of MPICH and Intel, and srun with their interface, set `pmi`.
int number_in(const char* open_mpi, const char* pmi, int otherwise) {
  for (const char* name : {open_mpi, pmi}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    int number = otherwise;
    std::from_chars(text, text + std::strlen(text), number);
    return number;
  }
  return otherwise;
}

}  // namespace

int launched_ranks() { return number_in("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", 1); }
int launched_here() { return number_in("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", launched_ranks()); }
int launched_rank() { return number_in("OMPI_COMM_WORLD_RANK", "PMI_RANK", 0); }

}  // namespace winnow::mpi
