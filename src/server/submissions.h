// The requests of the batch that one client's request is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "winnow/batch.h"

namespace winnow::server {

// Submits the requests that belong together, and cancels those that are not done when it is destroyed. Not thread-safe.
class Submissions {
 public:
  explicit Submissions(Batch& batch) : batch_(batch) {}
  ~Submissions();
  Submissions(const Submissions&) = delete;
  Submissions& operator=(const Submissions&) = delete;

  // Returns the number of requests submitted so far.
  std::size_t size() const { return ids_.size(); }
  // Submits the next request. Returns false if the queue is full, but earlier ones were submitted: the caller tries
  // again later. Throws what Batch::submit throws, QueueFull for the first one only.
  bool submit(BatchRequest request, BatchCallbacks callbacks);

 private:
  Batch& batch_;
  std::vector<std::uint64_t> ids_;
};

}  // namespace winnow::server
