// The samples that a calibration has finished, on disk, so that a killed one resumes where it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "winnow/model.h"

namespace winnow {

// The result of one sample.
struct SampleBudgets {
  std::uint64_t hash = 0;      // hash of its tokens
  std::int32_t n_context = 0;  // N
  // [n_ratio][heads that are cut] entries kept, sinks and window included. A row is empty if the total is below those;
  // every head then gets the global ratio.
  std::vector<std::vector<std::int32_t>> budgets;
};

struct CalibrationState {
  std::string model, scorer;        // as in the profile
  std::string loss = "importance";  // the loss of the curves
  int n_decode = 0;
  std::uint64_t seed = 0;
  std::string date;  // day on which the calibration began
  std::vector<SampleBudgets> samples;

  // Reads the samples of an earlier run of the same calibration; none if there is no such file. `hashes` [n_samples]
  // are those of this calibration's samples, n_ratio and n_heads the shape. Throws Error(kBadFile) for a damaged file,
  // Error(kInvalidArgument) for one of another calibration.
  void take_up(const std::string& path, const std::vector<std::uint64_t>& hashes, std::size_t n_ratio,
               std::size_t n_heads);
  void save(const std::string& path) const;
};

std::uint64_t hash_tokens(const std::vector<Token>& context, const std::vector<Token>& question);

}  // namespace winnow
