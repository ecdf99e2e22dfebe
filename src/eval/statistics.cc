#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace winnow::eval {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Cluster {
  double sum = 0;
  int count = 0;
};

struct Stratum {
  std::vector<Cluster> clusters;
  double mean = 0;
  int n_samples = 0;
};

std::vector<Stratum> group(std::span<const Observation> observations) {
  std::map<std::string, std::map<std::string, Cluster>> named;
  std::map<std::string, std::vector<Cluster>> alone;
  for (const Observation& observation : observations) {
    if (observation.cluster.empty()) {
      alone[observation.stratum].push_back({observation.value, 1});
    } else {
      Cluster& cluster = named[observation.stratum][observation.cluster];
      cluster.sum += observation.value;
      cluster.count += 1;
    }
  }
  for (const auto& [stratum, clusters] : named) {
    // A single book says nothing about other books, so its prompts count as independent samples.
    if (clusters.size() == 1 && !alone.contains(stratum)) {
      for (const Observation& observation : observations) {
        if (observation.stratum == stratum) alone[stratum].push_back({observation.value, 1});
      }
      continue;
    }
    for (const auto& [name, cluster] : clusters) alone[stratum].push_back(cluster);
  }
  std::vector<Stratum> strata;
  for (auto& [name, clusters] : alone) {
    Stratum stratum{.clusters = std::move(clusters)};
    double sum = 0;
    for (const Cluster& cluster : stratum.clusters) {
      sum += cluster.sum;
      stratum.n_samples += cluster.count;
    }
    stratum.mean = sum / stratum.n_samples;
    strata.push_back(std::move(stratum));
  }
  return strata;
}

int count_clusters(std::span<const Observation> observations) {
  std::map<std::string, int> named;
  int alone = 0;
  for (const Observation& observation : observations) {
    if (observation.cluster.empty()) {
      ++alone;
    } else {
      ++named[observation.cluster];
    }
  }
  return alone + static_cast<int>(named.size());
}

// Returns a quantile by linear interpolation between order statistics; `sorted` is not empty.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Returns the standard normal's quantile for the usual two-sided levels, by bisection of erfc.
double two_sided_z(double level) {
  double low = 0, high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) > 1 - level ? low : high) = middle;
  }
  return low;
}

void set_wilson_bounds(Interval& interval, double level) {
  const double z = two_sided_z(level), n = interval.n_clusters, p = interval.mean;
  const double centre = (p + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z / (1 + z * z / n) * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  interval.low = p == 0 ? 0 : centre - half;
  interval.high = p == 1 ? 1 : centre + half;
}

double resampled_mean(const Stratum& stratum, std::mt19937_64& random) {
  const std::size_t n = stratum.clusters.size();
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Cluster& cluster = stratum.clusters[random() % n];
    sum += cluster.sum;
    count += cluster.count;
  }
  const double widening = std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1));
  return stratum.mean + (sum / count - stratum.mean) * widening;
}

// Returns an interval without bounds if a stratum has nothing to resample.
Interval resample(std::span<const Observation> observations, const BootstrapOptions& options) {
  Interval interval{.mean = kNaN, .low = kNaN, .high = kNaN};
  if (observations.empty()) return interval;
  interval.n_samples = static_cast<int>(observations.size());
  interval.n_clusters = count_clusters(observations);
  const std::vector<Stratum> strata = group(observations);
  const double share = 1 / static_cast<double>(strata.size());
  interval.mean = 0;
  for (const Stratum& stratum : strata) interval.mean += stratum.mean * share;
  for (const Stratum& stratum : strata) {
    if (stratum.clusters.size() < 2) return interval;
  }
  std::mt19937_64 random(options.seed);
  std::vector<double> means;
  means.reserve(static_cast<std::size_t>(options.n_resamples));
  for (int i = 0; i < options.n_resamples; ++i) {
    double mean = 0;
    for (const Stratum& stratum : strata) mean += resampled_mean(stratum, random) * share;
    means.push_back(mean);
  }
  std::sort(means.begin(), means.end());
  interval.low = quantile(means, (1 - options.level) / 2);
  interval.high = quantile(means, (1 + options.level) / 2);
  return interval;
}

Comparison compare(std::span<const Pair> pairs, const BootstrapOptions& options,
                   const std::function<double(const Pair&)>& value_of) {
  Comparison comparison;
  std::vector<Observation> observations;
  for (const Pair& pair : pairs) {
    const double value = value_of(pair);
    observations.push_back({value, pair.cluster, pair.stratum});
    ++(value > 0 ? comparison.n_greater : value < 0 ? comparison.n_less : comparison.n_equal);
  }
  comparison.difference = resample(observations, options);
  comparison.is_clear =
      comparison.difference.has_bounds() && (comparison.difference.low > 0 || comparison.difference.high < 0);
  return comparison;
}

}  // namespace

bool Interval::has_bounds() const { return !std::isnan(low) && !std::isnan(high); }

Interval bootstrap_mean(std::span<const Observation> observations, const BootstrapOptions& options) {
  Interval interval = resample(observations, options);
  const bool all_equal = std::all_of(observations.begin(), observations.end(),
                                     [&](const Observation& o) { return o.value == observations[0].value; });
  if (options.is_share && !observations.empty() && all_equal &&
      (observations[0].value == 0 || observations[0].value == 1)) {
    interval.mean = observations[0].value;
    set_wilson_bounds(interval, options.level);
  } else if (options.is_share && interval.has_bounds()) {
    // Widened bounds may exceed the range of a share.
    interval.low = std::max(interval.low, 0.0);
    interval.high = std::min(interval.high, 1.0);
    // If every task is all right or all wrong, there is no variation to estimate bounds from.
    if (interval.low == interval.high) interval.low = interval.high = kNaN;
  }
  return interval;
}

Comparison compare_differences(std::span<const Pair> pairs, const BootstrapOptions& options) {
  return compare(pairs, options, [](const Pair& pair) { return pair.a - pair.b; });
}

Comparison compare_ratios(std::span<const Pair> pairs, double floor, const BootstrapOptions& options) {
  Comparison comparison = compare(pairs, options, [floor](const Pair& pair) {
    return std::log(std::max(pair.a, floor)) - std::log(std::max(pair.b, floor));
  });
  for (double* bound : {&comparison.difference.mean, &comparison.difference.low, &comparison.difference.high}) {
    *bound = std::exp(*bound);
  }
  return comparison;
}

std::string small_sample_warning(int n_samples, int n_clusters) {
  const std::string samples = std::to_string(n_samples) + (n_samples == 1 ? " sample" : " samples");
  if (n_samples < 10) return samples + ": too few to say anything about the methods";
  if (n_clusters < 3) {
    return samples + " from " + (n_clusters == 1 ? "one source" : "two sources") +
           ": the intervals say nothing about other texts";
  }
  if (n_samples < 20) return samples + ": only large differences can show";
  return "";
}

}  // namespace winnow::eval
