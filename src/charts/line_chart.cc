#include <algorithm>
#include <cmath>
#include <limits>

#include "charts/charts.h"
#include "charts/svg.h"

namespace winnow::charts {
namespace {

constexpr double kTop = 34, kBottom = 48, kRight = 16, kLeft = 64;
constexpr double kNameRow = 16;
constexpr double kSample = 28;             // length of the line before its name in a legend
constexpr double kMargin = 20;             // distance of the data from the ends of the x axis
constexpr double kLeader = 26;             // distance from the plot to the names next to it
constexpr double kNamesBeside = 560;       // width from which names fit next to the plot
constexpr std::size_t kMostIntervals = 6;  // most lines that are drawn with intervals

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

// Returns the points that can be drawn, of the series that have any.
std::vector<Series> drawable(const LineChart& chart) {
  std::vector<Series> all;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    Series kept{.name = series.name, .points = {}, .look = series.look.value_or(i)};
    for (const Point& point : series.points) {
      if (can_be_drawn(point.x, chart.x) && can_be_drawn(point.y, chart.y)) kept.points.push_back(point);
    }
    if (!kept.points.empty()) all.push_back(std::move(kept));
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

// Returns a piece of the line with its marker, and the name.
std::string legend_entry(const Series& series, double x, double y, double width) {
  return "<path d=\"M" + number(x) + " " + number(y) + "h" + number(kSample - 6) +
         "\" style=\"stroke:" + series_colour(*series.look) +
         ";stroke-width:2;stroke-dasharray:" + series_dash(*series.look) + "\"/>\n" +
         svg_marker(*series.look, x + (kSample - 6) / 2, y, series.name) +
         svg_fitted_text(x + kSample, y + 4, series.name, width - kSample);
}

// Returns places for labels around `wanted`, ascending like these, at least a row apart, from `top` on, and up to
// `bottom` if there is room.
std::vector<double> spread(std::vector<double> wanted, double top, double bottom) {
  double free_to = bottom;
  for (std::size_t i = wanted.size(); i-- > 0; free_to = wanted[i] - kNameRow) wanted[i] = std::min(wanted[i], free_to);
  double free_from = top;
  for (double& place : wanted) {
    place = std::max(place, free_from);
    free_from = place + kNameRow;
  }
  return wanted;
}

// Returns a line with its markers, `shift` pixels to the right so that intervals at the same place do not cover each
// other.
std::string drawn(const Series& series, const AxisMap& x, const AxisMap& y, double shift, bool with_intervals) {
  const std::string colour = series_colour(*series.look);
  std::string path, svg;
  for (const Point& point : series.points) {
    path += (path.empty() ? "M" : "L") + number(x.pixel(point.x) + shift) + " " + number(y.pixel(point.y));
  }
  svg += "<path d=\"" + path + "\" style=\"fill:none;stroke:" + colour +
         ";stroke-width:2;stroke-dasharray:" + series_dash(*series.look) + "\"/>\n";
  for (const Point& point : series.points) {
    const double px = x.pixel(point.x) + shift;
    if (with_intervals && point.low && point.high && std::isfinite(y.pixel(*point.low)) &&
        std::isfinite(y.pixel(*point.high))) {
      svg += "<path d=\"M" + number(px) + " " + number(y.pixel(*point.low)) + "V" + number(y.pixel(*point.high)) +
             "\" style=\"stroke:" + colour + ";stroke-width:1.5;opacity:.55\"/>\n";
    }
    svg += svg_marker(*series.look, px, y.pixel(point.y), tooltip(series, point, x, y));
  }
  return svg;
}

// The positions of the parts of a chart.
struct Layout {
  double name_width = 0;  // width of an entry of the legend
  std::size_t n_columns = 0;
  double top = 0, bottom = 0, right = 0;  // edges of the plot
  double height = 0;

  Layout(const LineChart& chart, const std::vector<Series>& series, double title_height) {
    double widest = 0;
    for (const Series& one : series) widest = std::max(widest, text_width(one.name, 12) + kSample + 4);
    const auto n = static_cast<double>(series.size());
    top = title_height + 6;
    if (names_beside(chart)) {
      name_width = std::min(widest, 0.42 * chart.width);
      right = chart.width - 8 - name_width - kLeader;
      bottom = std::max(chart.height - kBottom, top + n * kNameRow);
      height = bottom + kBottom;
      return;
    }
    const double room = chart.width - 24;
    n_columns = std::max<std::size_t>(1, static_cast<std::size_t>(room / std::max(widest + 8, 1.0)));
    n_columns = std::min(n_columns, std::max<std::size_t>(series.size(), 1));
    name_width = room / static_cast<double>(n_columns);
    right = chart.width - kRight;
    bottom = chart.height - kBottom + (top - kTop);
    height = bottom + kBottom + kNameRow * std::ceil(n / static_cast<double>(n_columns));
  }

  static bool names_beside(const LineChart& chart) { return chart.width >= kNamesBeside; }
};

std::string drawn_axes(const LineChart& chart, const Layout& at, const AxisMap& x, const AxisMap& y) {
  std::string svg;
  for (const double tick : y.ticks()) {
    svg += svg_line(kLeft, y.pixel(tick), at.right, y.pixel(tick), Ink::kGrid);
    svg += svg_text(kLeft - 6, y.pixel(tick) + 4, y.label(tick), {.ink = Ink::kMuted, .anchor = Anchor::kEnd});
  }
  double free_from = 0;  // labels that would touch the one before are left out
  for (const double tick : x.ticks()) {
    const double px = x.pixel(tick), half = text_width(x.label(tick), 12) / 2;
    svg += svg_line(px, at.bottom, px, at.bottom + 4, Ink::kLine);
    if (px - half < free_from || px + half > chart.width) continue;
    free_from = px + half + 6;
    svg += svg_text(px, at.bottom + 18, x.label(tick), {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  }
  svg += svg_line(kLeft, at.bottom, at.right, at.bottom, Ink::kLine);
  const double middle = (kLeft + at.right) / 2;
  svg += svg_fitted_text(middle, at.bottom + 38, chart.x.label, 2 * std::min(middle, chart.width - middle) - 8,
                         {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  return svg + "<g transform=\"translate(15 " + number((at.top + at.bottom) / 2) + ") rotate(-90)\">" +
         svg_fitted_text(0, 0, chart.y.label, at.bottom - at.top + kBottom,
                         {.ink = Ink::kMuted, .anchor = Anchor::kMiddle}) +
         "</g>\n";
}

std::string drawn_levels(const LineChart& chart, const Layout& at, const AxisMap& y) {
  std::string svg;
  double free_to = at.bottom + kNameRow;  // names that would touch the one below move up
  std::vector<Level> levels = chart.levels;
  std::stable_sort(levels.begin(), levels.end(),
                   [&](const Level& a, const Level& b) { return y.pixel(a.y) > y.pixel(b.y); });
  for (const Level& level : levels) {
    if (!can_be_drawn(level.y, chart.y)) continue;
    const double py = y.pixel(level.y);
    svg += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(at.right) + "\" y1=\"" + number(py) + "\" y2=\"" +
           number(py) + "\" style=\"stroke:" + ink(Ink::kText) + ";stroke-dasharray:4 4\"/>\n";
    const double text_y = std::min(py - 5, free_to);
    free_to = text_y - kNameRow;
    svg += svg_text(at.right, text_y, level.name + " " + y.label(level.y), {.anchor = Anchor::kEnd});
  }
  return svg;
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  std::vector<Series> all = drawable(chart);
  const bool with_intervals = all.size() <= kMostIntervals;
  Range x_range, y_range;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      x_range.add(point.x);
      y_range.add(point.y);
      if (!with_intervals) continue;
      for (const auto& bound : {point.low, point.high}) {
        if (bound && can_be_drawn(*bound, chart.y)) y_range.add(*bound);
      }
    }
  }
  for (const Level& level : chart.levels) {
    if (can_be_drawn(level.y, chart.y)) y_range.add(level.y);
  }
  double title_height = kTop;
  const std::string title = svg_title(chart.title, chart.width, title_height);
  const Layout at(chart, all, title_height);
  std::string svg = svg_begin(chart.width, at.height, chart.title) + title;
  if (!(x_range.low <= x_range.high) || !(y_range.low <= y_range.high)) {
    return svg + svg_text(kLeft, at.top + 20, "no data", {.ink = Ink::kMuted}) + svg_end();
  }
  const AxisMap x(chart.x, x_range.low, x_range.high, kLeft + kMargin, at.right - kMargin, 6);
  const AxisMap y(chart.y, y_range.low, y_range.high, at.bottom, at.top, 6);
  svg += drawn_axes(chart, at, x, y) + drawn_levels(chart, at, y);

  // Series are drawn from the line that ends highest to the lowest.
  const auto end_of = [&](const Series& series) { return y.pixel(series.points.back().y); };
  std::stable_sort(all.begin(), all.end(), [&](const Series& a, const Series& b) { return end_of(a) < end_of(b); });
  std::vector<double> places;
  for (const Series& series : all) places.push_back(end_of(series));
  places = spread(std::move(places), at.top + kNameRow / 2, at.bottom - kNameRow / 2);
  const auto n = static_cast<double>(all.size());
  const double step = with_intervals ? 5 : 0;
  const std::size_t n_rows = at.n_columns == 0 ? 0 : (all.size() + at.n_columns - 1) / at.n_columns;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double shift = (static_cast<double>(i) - (n - 1) / 2) * step;
    svg += "<g class=\"series\">\n";
    if (Layout::names_beside(chart)) {
      const double from = x.pixel(all[i].points.back().x) + shift + 6, to = chart.width - 8 - at.name_width;
      svg += "<path d=\"M" + number(from) + " " + number(end_of(all[i])) + "L" + number(to - 4) + " " +
             number(places[i]) + "\" style=\"fill:none;stroke:" + series_colour(*all[i].look) +
             ";stroke-width:1;opacity:.5\"/>\n" + legend_entry(all[i], to, places[i], at.name_width);
    } else {
      const double column = static_cast<double>(i / n_rows), row = static_cast<double>(i % n_rows);
      svg += legend_entry(all[i], 12 + column * at.name_width, at.bottom + kBottom + 4 + row * kNameRow, at.name_width);
    }
    svg += drawn(all[i], x, y, shift, with_intervals) + "</g>\n";
  }
  return svg + svg_end();
}

}  // namespace winnow::charts
