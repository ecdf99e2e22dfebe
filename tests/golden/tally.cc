#include "golden/tally.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace winnow::golden {

void Tally::fail(const std::string& what, const std::string& why) {
  ++failed_;
  std::printf("FAIL %s: %s\n", what.c_str(), why.c_str());
}

void Tally::skip(const std::string& reason) {
  ++skipped_;
  ++reasons_[reason];
}

void Tally::require(const std::string& what, bool holds, const std::string& why) { holds ? pass() : fail(what, why); }

void Tally::close(const std::string& what, std::span<const double> actual, std::span<const double> expected,
                  const Tolerance& tolerance) {
  if (actual.size() != expected.size()) {
    return fail(what, std::to_string(actual.size()) + " numbers instead of " + std::to_string(expected.size()));
  }
  double max = 0;
  for (const double x : expected) max = std::max(max, std::fabs(x));
  std::size_t n_bad = 0, worst = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double allowed =
        tolerance.relative * std::fabs(expected[i]) + tolerance.absolute + tolerance.absolute_of_max * max;
    const double excess = std::fabs(actual[i] - expected[i]) - allowed;
    if (excess <= 0) continue;  // false for NaN
    ++n_bad;
    if (n_bad == 1 || !(excess <= worst_excess)) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (n_bad == 0) return pass();
  char text[200];
  std::snprintf(text, sizeof text, "%zu of %zu numbers differ, worst [%zu] %.9g instead of %.9g", n_bad, actual.size(),
                worst, actual[worst], expected[worst]);
  fail(what, text);
}

void Tally::print_summary() const {
  for (const auto& [reason, count] : reasons_) {
    std::printf("skipped %lld: %s\n", static_cast<long long>(count), reason.c_str());
  }
  std::printf("%lld heads, layers or configurations were too close to call and not compared\n",
              static_cast<long long>(margins_));
  std::printf("%lld passed, %lld failed, %lld skipped\n", static_cast<long long>(passed_),
              static_cast<long long>(failed_), static_cast<long long>(skipped_));
}

}  // namespace winnow::golden
