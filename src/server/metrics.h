// Numbers for Prometheus, in its text format.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "winnow/batch.h"

namespace winnow::server {

// Answers by status. Thread-safe.
class StatusCounts {
 public:
  void add(int status) {
    if (status >= 100 && status < 600) ++counts_[static_cast<std::size_t>(status)];
  }
  std::string text() const;

 private:
  std::array<std::atomic<std::int64_t>, 600> counts_{};
};

// batch: null while the model is loaded.
std::string metrics_text(const StatusCounts& counts, const Batch* batch);

}  // namespace winnow::server
