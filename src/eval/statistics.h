// How sure a mean is: bootstrap intervals over samples that may belong together, and differences between methods on the
// same samples.
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
  double low = 0, high = 0;  // NaN where there is nothing to estimate them from: a stratum of a single sample
  int n_samples = 0;
  int n_clusters = 0;

  bool has_bounds() const;
};

// NaN without observations.
Interval bootstrap_mean(std::span<const Observation> observations, const BootstrapOptions& options = {});

// The same sample under two methods.
struct Pair {
  double a = 0, b = 0;
  std::string cluster = {};
  std::string stratum = {};
};

struct Comparison {
  Interval difference;  // of a - b; for compare_ratios: of a / b, geometric
  int n_greater = 0;    // samples where a > b
  int n_equal = 0;
  int n_less = 0;
  bool is_clear = false;  // the interval leaves "no difference" out
};

Comparison compare_differences(std::span<const Pair> pairs, const BootstrapOptions& options = {});

// For quantities that methods change by factors, such as a divergence: exp(mean of log(a / b)). Values below `floor`
// (two caches that hold the same) count as it.
Comparison compare_ratios(std::span<const Pair> pairs, double floor = 1e-9, const BootstrapOptions& options = {});

// What so few samples cannot say, as a sentence; empty where they are enough.
std::string small_sample_warning(int n_samples, int n_clusters);

}  // namespace winnow::eval
