#include <algorithm>
#include <cmath>
#include <limits>

#include "charts/charts.h"
#include "charts/svg.h"

namespace winnow::charts {
namespace {

constexpr double kTop = 34, kBottom = 48, kRight = 16;
constexpr double kLegendRow = 18;
constexpr double kMargin = 20;  // of the data inside the axes

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool can_be_drawn(double value, const Axis& axis) {
  return std::isfinite(value) && (axis.scale == Scale::kLinear || value > 0);
}

// The series without what cannot be drawn.
std::vector<Series> drawable(const LineChart& chart) {
  std::vector<Series> all;
  for (const Series& series : chart.series) {
    Series& kept = all.emplace_back(Series{series.name, {}});
    for (const Point& point : series.points) {
      if (can_be_drawn(point.x, chart.x) && can_be_drawn(point.y, chart.y)) kept.points.push_back(point);
    }
  }
  return all;
}

std::string tooltip(const Series& series, const Point& point, const AxisMap& x, const AxisMap& y) {
  std::string text = series.name + ": " + y.label(point.y);
  if (point.low && point.high) text += " [" + y.label(*point.low) + ", " + y.label(*point.high) + "]";
  text += " at " + x.label(point.x);
  if (!point.note.empty()) text += ", " + point.note;
  return text;
}

// Names with their markers, row by row. Returns the height that they took.
double add_legend(const LineChart& chart, double left, double y, std::string& svg) {
  double x = left, height = kLegendRow;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const double width = text_width(chart.series[i].name, 12) + 38;
    if (x > left && x + width > chart.width - kRight) {
      x = left;
      y += kLegendRow;
      height += kLegendRow;
    }
    svg += "<line x1=\"" + number(x) + "\" x2=\"" + number(x + 20) + "\" y1=\"" + number(y) + "\" y2=\"" + number(y) +
           "\" style=\"stroke:" + series_colour(i) + ";stroke-width:2;stroke-dasharray:" + series_dash(i) + "\"/>\n";
    svg += svg_marker(i, x + 10, y, chart.series[i].name);
    svg += svg_text(x + 25, y + 4, chart.series[i].name);
    x += width;
  }
  return height;
}

// `shift`: pixels to the right, so that intervals at the same place do not cover each other.
void add_series(std::size_t index, const Series& series, const AxisMap& x, const AxisMap& y, double shift,
                std::string& svg) {
  const std::string colour = series_colour(index);
  std::string path;
  for (const Point& point : series.points) {
    path += (path.empty() ? "M" : "L") + number(x.pixel(point.x) + shift) + " " + number(y.pixel(point.y));
  }
  svg += "<path d=\"" + path + "\" style=\"fill:none;stroke:" + colour +
         ";stroke-width:2;stroke-dasharray:" + series_dash(index) + "\"/>\n";
  for (const Point& point : series.points) {
    const double px = x.pixel(point.x) + shift;
    if (point.low && point.high && std::isfinite(y.pixel(*point.low)) && std::isfinite(y.pixel(*point.high))) {
      svg += "<path d=\"M" + number(px) + " " + number(y.pixel(*point.low)) + "V" + number(y.pixel(*point.high)) +
             "\" style=\"stroke:" + colour + ";stroke-width:1.5;opacity:.55\"/>\n";
    }
    svg += svg_marker(index, px, y.pixel(point.y), tooltip(series, point, x, y));
  }
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  const std::vector<Series> all = drawable(chart);
  Range x_range, y_range;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      x_range.add(point.x);
      y_range.add(point.y);
      for (const auto& bound : {point.low, point.high}) {
        if (bound && can_be_drawn(*bound, chart.y)) y_range.add(*bound);
      }
    }
  }
  for (const Level& level : chart.levels) {
    if (can_be_drawn(level.y, chart.y)) y_range.add(level.y);
  }
  std::string legend;
  const double left = 64;
  const double legend_height = add_legend(chart, left, kTop + 8, legend);
  // A long legend makes the drawing higher, not the plot lower.
  const double height = chart.height + std::max(0.0, legend_height - 3 * kLegendRow);
  const double top = kTop + legend_height + 8, bottom = height - kBottom;
  std::string svg = svg_begin(chart.width, height, chart.title);
  svg += svg_text(left, 20, chart.title, {.size = 14, .is_bold = true}) + legend;
  if (!(x_range.low <= x_range.high) || !(y_range.low <= y_range.high)) {
    return svg + svg_text(left, top + 20, "no data", {.ink = Ink::kMuted}) + svg_end();
  }
  const AxisMap x(chart.x, x_range.low, x_range.high, left + kMargin, chart.width - kRight - kMargin, 6);
  const AxisMap y(chart.y, y_range.low, y_range.high, bottom, top, 6);
  for (const double tick : y.ticks()) {
    svg += svg_line(left, y.pixel(tick), chart.width - kRight, y.pixel(tick), Ink::kGrid);
    svg += svg_text(left - 6, y.pixel(tick) + 4, y.label(tick), {.ink = Ink::kMuted, .anchor = Anchor::kEnd});
  }
  double free_from = 0;  // labels that would touch the one before are left out
  for (const double tick : x.ticks()) {
    const double px = x.pixel(tick), half = text_width(x.label(tick), 12) / 2;
    svg += svg_line(px, bottom, px, bottom + 4, Ink::kLine);
    if (px - half < free_from) continue;
    free_from = px + half + 6;
    svg += svg_text(px, bottom + 18, x.label(tick), {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  }
  svg += svg_line(left, bottom, chart.width - kRight, bottom, Ink::kLine);
  svg += svg_text((left + chart.width - kRight) / 2, height - 10, chart.x.label,
                  {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  svg += "<g transform=\"translate(15 " + number((top + bottom) / 2) + ") rotate(-90)\">" +
         svg_text(0, 0, chart.y.label, {.ink = Ink::kMuted, .anchor = Anchor::kMiddle}) + "</g>\n";
  for (const Level& level : chart.levels) {
    if (!can_be_drawn(level.y, chart.y)) continue;
    const double py = y.pixel(level.y);
    svg += "<line x1=\"" + number(left) + "\" x2=\"" + number(chart.width - kRight) + "\" y1=\"" + number(py) +
           "\" y2=\"" + number(py) + "\" style=\"stroke:" + ink(Ink::kText) + ";stroke-dasharray:4 4\"/>\n";
    svg += svg_text(chart.width - kRight, py - 5, level.name + " " + y.label(level.y), {.anchor = Anchor::kEnd});
  }
  const auto n = static_cast<double>(all.size());
  const double step = std::min(5.0, 30 / n);
  for (std::size_t i = 0; i < all.size(); ++i) {
    add_series(i, all[i], x, y, (static_cast<double>(i) - (n - 1) / 2) * step, svg);
  }
  return svg + svg_end();
}

}  // namespace winnow::charts
