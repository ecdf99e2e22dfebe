// A counter of comparisons that prints the failing ones.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace winnow::golden {

struct Tolerance {
  double relative;
  double absolute;         // added as it is
  double absolute_of_max;  // times the largest magnitude of the expected numbers
};

// For scores, value terms, statistics and real-valued shares.
inline constexpr Tolerance kScores = {1e-4, 0, 1e-6};
// For losses and bounds.
inline constexpr Tolerance kLosses = {1e-4, 1e-4, 0};

// For refitted values, which solvers in float32 compute, and for attention over them.
inline constexpr Tolerance kFitted = {0, 0, 1e-3};
inline constexpr Tolerance kFittedOutput = {2e-3, 0, 2e-3};

class Tally {
 public:
  void pass() { ++passed_; }
  void fail(const std::string& what, const std::string& why);  // prints a line
  void skip(const std::string& reason);                        // a case that this program was built without
  void skip_margin() { ++margins_; }                           // a head, layer or config too close to call

  // Compares numbers, as one comparison.
  void close(const std::string& what, std::span<const double> actual, std::span<const double> expected,
             const Tolerance& tolerance);
  void require(const std::string& what, bool holds, const std::string& why);

  // Prints a summary, whose last line is "N passed, M failed, K skipped".
  void print_summary() const;
  bool has_failed() const { return failed_ > 0; }

 private:
  std::int64_t passed_ = 0, failed_ = 0, skipped_ = 0, margins_ = 0;
  std::map<std::string, std::int64_t> reasons_;  // of skips
};

}  // namespace winnow::golden
