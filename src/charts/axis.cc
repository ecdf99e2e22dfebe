#include "charts/axis.h"

#include <algorithm>
#include <cmath>

#include "charts/svg.h"

namespace winnow::charts {
namespace {

// Returns the least of 1, 2, 5 and 10 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * 0.999) return factor * power;
  }
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, int n_ticks) {
  const double step = round_step((high - low) / std::max(n_ticks - 1, 1));
  std::vector<double> ticks;
  for (double i = std::floor(low / step + 1e-9); i <= std::ceil(high / step - 1e-9) + 0.5; ++i)
    ticks.push_back(i * step);
  return ticks;
}

// Returns 1, 2 and 5 times every power of ten; only the powers of ten over more than three decades.
std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> all;
  const bool is_wide = std::log10(high / low) > 3;
  for (double decade = std::floor(std::log10(low)) - 1; decade <= std::ceil(std::log10(high)) + 1; ++decade) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor == 1 || !is_wide) all.push_back(factor * std::pow(10, decade));
    }
  }
  // Ticks go from the last one at or below the range to the first at or above it.
  auto first = std::upper_bound(all.begin(), all.end(), low * 1.0001);
  if (first != all.begin()) --first;
  auto last = std::lower_bound(first, all.end(), high * 0.9999);
  if (last != all.end()) ++last;
  return {first, last};
}

}  // namespace

AxisMap::AxisMap(const Axis& axis, double low, double high, double pixel_low, double pixel_high, int n_ticks)
    : axis_(axis), low_(low), high_(high), pixel_low_(pixel_low), pixel_high_(pixel_high) {
  if (axis_.scale == Scale::kLinear) {
    if (axis_.includes_zero) {
      low_ = std::min(low_, 0.0);
      high_ = std::max(high_, 0.0);
    }
    if (high_ <= low_) {
      const double margin = low_ == 0 ? 1 : std::abs(low_) * 0.1;
      low_ -= axis_.includes_zero && low_ == 0 ? 0 : margin;
      high_ += margin;
    }
  } else if (high_ <= low_ * 1.0001) {
    low_ /= 1.5;
    high_ *= 1.5;
  }
  if (axis_.ticks.empty()) {
    ticks_ = axis_.scale == Scale::kLinear ? linear_ticks(low_, high_, n_ticks) : logarithmic_ticks(low_, high_);
    low_ = std::min(low_, ticks_.front());
    high_ = std::max(high_, ticks_.back());
  } else {
    ticks_ = axis_.ticks;
    const double margin = axis_.scale == Scale::kLinear ? 0.04 * (high_ - low_) : 0;
    low_ -= margin;
    high_ += margin;
    if (axis_.scale == Scale::kLogarithmic) {
      const double factor = std::pow(high_ / low_, 0.04);
      low_ /= factor;
      high_ *= factor;
    }
  }
}

double AxisMap::position(double value) const {
  return axis_.scale == Scale::kLinear ? value : std::log(std::max(value, 1e-300));
}

double AxisMap::pixel(double value) const {
  const double share = (position(value) - position(low_)) / (position(high_) - position(low_));
  return pixel_low_ + share * (pixel_high_ - pixel_low_);
}

std::string AxisMap::label(double tick) const {
  if (axis_.is_percent) return label_of(100 * tick) + " %";
  return label_of(std::abs(tick) < 1e-12 ? 0 : tick, true);
}

}  // namespace winnow::charts
