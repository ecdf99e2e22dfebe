// Rows of `winnow bench`, in llama-bench's formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow::cli {

struct BenchRow {
  std::string model_filename;
  ModelInfo model;
  int n_batch = 0, n_threads = 0;
  std::string device = "cpu", device_name;  // Engine::device(); the card's name, empty for the processor
  int device_layers = 0;                    // whose weights stay on the device
  std::string type_k, type_v;
  int n_prompt = 0, n_gen = 0, n_depth = 0;
  int n_parallel = 1;                         // sequences that generate at once
  std::string method, budget;                 // text forms; budget "" for the full cache
  std::string test_time = {};                 // ISO 8601, UTC
  std::vector<std::int64_t> samples_ns = {};  // one per repetition
  double prefill_s = 0, evict_s = 0;          // of the last repetition, or of the depth; evict is a part of prefill
  std::int64_t entries_full = 0, entries_kept = 0;
  std::size_t bytes_kept = 0;  // entries, without page rounding
  std::size_t bytes_peak = 0;  // pages and staging buffers
  std::size_t rss_peak_bytes = 0;

  std::vector<double> samples_ts() const;  // tokens per second, of all sequences together
  std::string test() const;                // "pp512", "tg64 @ d4096", "tg64 x4 @ d4096"
  std::string model_type() const;          // "llama 135M Q4_1"
  std::string backend() const;             // "CPU", "CUDA"
};

struct MeanAndDeviation {
  double mean, deviation;  // deviation of the sample, 0 for a single value
};
MeanAndDeviation mean_and_deviation(const std::vector<double>& values);

// A format of the standard output: text before the first row, for each row (as soon as it is measured), after the last.
class BenchFormat {
 public:
  virtual ~BenchFormat() = default;
  virtual std::string begin() { return ""; }
  virtual std::string row(const BenchRow& row) = 0;
  virtual std::string end() { return ""; }
};

// Returns the format "md", "json" or "csv"; throws UsageError for another name.
std::unique_ptr<BenchFormat> make_bench_format(const std::string& name);

}  // namespace winnow::cli
