// Maps values to positions on a chart, and chooses its ticks.
#pragma once

#include <string>
#include <vector>

namespace winnow::charts {

enum class Scale { kLinear, kLogarithmic };

struct Axis {
  std::string label = {};
  Scale scale = Scale::kLinear;
  bool is_percent = false;         // values are shares: shown times 100, with a percent sign
  bool includes_zero = false;      // linear only
  std::vector<double> ticks = {};  // empty: chosen
};

// A map from a range of values to a range of pixels. Logarithmic axes take positive values only.
class AxisMap {
 public:
  // Widens the range to whole ticks unless the axis names its own. `low` <= `high`.
  AxisMap(const Axis& axis, double low, double high, double pixel_low, double pixel_high, int n_ticks);

  double pixel(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  std::string label(double tick) const;

 private:
  double position(double value) const;  // linear in pixels

  Axis axis_;
  double low_, high_, pixel_low_, pixel_high_;
  std::vector<double> ticks_;
};

}  // namespace winnow::charts
