#include "server/submissions.h"

#include <utility>

namespace winnow::server {

Submissions::~Submissions() {
  for (const std::uint64_t id : ids_) batch_.cancel(id);
}

bool Submissions::submit(BatchRequest request, BatchCallbacks callbacks) {
  try {
    ids_.push_back(batch_.submit(std::move(request), std::move(callbacks), ids_));
  } catch (const QueueFull&) {
    if (ids_.empty()) throw;
    return false;
  }
  return true;
}

}  // namespace winnow::server
