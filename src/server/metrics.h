// Numbers for Prometheus, in its text format.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "winnow/batch.h"

namespace winnow::server {

// The number of HTTP responses by status. Thread-safe.
class StatusCounts {
 public:
  void add(int status) {
    if (status >= 100 && status < 600) ++counts_[static_cast<std::size_t>(status)];
  }
  std::string text() const;

 private:
  std::array<std::atomic<std::int64_t>, 600> counts_{};
};

// A histogram of durations. Thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double seconds);
  // Returns Prometheus' lines for it. `name` lacks the prefix of all our metrics.
  std::string text(const std::string& name, const char* help) const;

 private:
  const std::vector<double> bounds_;  // seconds, ascending
  mutable std::mutex mutex_;
  std::vector<std::int64_t> counts_;  // [bounds + 1]: up to each bound and above the one before; the last: above all
  double sum_ = 0;
};

// The latencies of generation requests. Thread-safe.
class Latencies {
 public:
  // `seconds`: from the arrival of the request to the end of its answer.
  void add(const BatchResult& result, double seconds);
  std::string text() const;

 private:
  Histogram request_{{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}};
  Histogram first_token_{{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}};
  Histogram token_{{0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}};
};

// Returns all metrics. batch: null while the model is loaded.
std::string metrics_text(const StatusCounts& counts, const Latencies& latencies, const Batch* batch);

}  // namespace winnow::server
