// Uncertainty of means: bootstrap intervals over samples that may belong together, and of differences between methods
// on the same samples.
//
// Intervals are percentile bootstraps in which whole clusters are drawn (all prompts of a book together), within each
// stratum (task), widened by sqrt(G / (G - 1)) for G clusters because a bootstrap of few is too narrow. Draws come from
// a fixed seed: the same answers give the same table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace winnow::eval {

struct Observation {
  double value = 0;
  std::string cluster = {};  // empty: independent of all others
  std::string stratum = {};  // the mean is that of the strata's means
};

struct BootstrapOptions {
  double level = 0.95;
  int n_resamples = 2000;
  std::uint64_t seed = 1;
  bool is_share = false;  // values and bounds are in [0, 1]; if all are 0, or all 1, Wilson's interval
};

struct Interval {
  double mean = 0;
  double low = 0, high = 0;  // NaN if they cannot be estimated: a stratum of a single sample
  int n_samples = 0;
  int n_clusters = 0;

  bool has_bounds() const;
};

// Returns NaN without observations.
Interval bootstrap_mean(std::span<const Observation> observations, const BootstrapOptions& options = {});

// The values of one sample under two methods.
struct Pair {
  double a = 0, b = 0;
  std::string cluster = {};
  std::string stratum = {};
};

struct Comparison {
  Interval difference;  // mean of a - b; for compare_ratios: geometric mean of a / b
  int n_greater = 0;    // samples where a > b
  int n_equal = 0;
  int n_less = 0;
  bool is_clear = false;  // the interval excludes "no difference"
};

Comparison compare_differences(std::span<const Pair> pairs, const BootstrapOptions& options = {});

// Compares quantities that methods change by factors, such as a divergence: exp(mean of log(a / b)). Values below
// `floor` (two caches that hold the same) count as `floor`.
Comparison compare_ratios(std::span<const Pair> pairs, double floor = 1e-9, const BootstrapOptions& options = {});

// Returns what so few samples cannot show, as a sentence; "" if they are enough.
std::string small_sample_warning(int n_samples, int n_clusters);

}  // namespace winnow::eval
