#include "mpi/mpi_link.h"
#include "winnow/error.h"

namespace winnow::mpi {

std::shared_ptr<PipelineLink> start() {
  throw Error(ErrorCode::kUnsupported,
              "this winnow was built without MPI and cannot share a model among ranks: install MPI's headers (Debian: "
              "libopenmpi-dev) and build it again");
}

void finish() {}
void give_up(int) {}

}  // namespace winnow::mpi
