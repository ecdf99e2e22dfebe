// Charts as SVG text: complete files, and parts of an HTML page. The same data always gives the same bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "charts/axis.h"

namespace winnow::charts {

// Widths of charts that stand alone on a wide screen, and of charts on a phone or side by side.
inline constexpr double kWide = 900, kNarrow = 420;

struct Point {
  double x = 0, y = 0;
  std::optional<double> low, high;  // an interval of y
  std::string note = {};            // end of the tooltip, after the values
};

struct Series {
  std::string name;
  std::vector<Point> points;        // ascending x; points with a NaN are left out
  std::optional<std::size_t> look;  // colour, dash and marker; not set: its place in the chart
};

// A level to compare with, drawn dashed across the whole chart.
struct Level {
  std::string name;
  double y = 0;
};

// A chart of lines with markers. The names stand next to the ends of the lines, or below the plot if the chart is
// narrow, in both from the highest line to the lowest. Intervals are drawn for a few lines only: those of many hide
// each other.
struct LineChart {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Level> levels = {};
  double width = 640, height = 360;  // grows if there are more names than fit
};
std::string to_svg(const LineChart& chart);

struct Bar {
  std::string name;
  double value = 0;
  std::optional<double> low, high;
  std::size_t colour = 0;  // index of a series' colour, see svg.h
};

// A chart of horizontal bars from zero, in the order given.
struct BarChart {
  std::string title;
  Axis value;  // linear
  std::vector<Bar> bars;
  double width = 640;  // the height follows from the number of bars
};
std::string to_svg(const BarChart& chart);

// A grid of cells coloured from `low` to `high`, light to dark. Empty cells are grey.
struct HeatMap {
  std::string title;
  std::string x_label, y_label;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<std::optional<double>>> cells;  // [row][column]
  double low = 0, high = 1;
  int decimals = 0;           // decimals of the numbers in the cells
  bool shows_numbers = true;  // in cells that are wide enough
  double width = 640;
};
std::string to_svg(const HeatMap& chart);

}  // namespace winnow::charts
