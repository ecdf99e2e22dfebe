#include <algorithm>
#include <cmath>

#include "charts/charts.h"
#include "charts/svg.h"

namespace winnow::charts {
namespace {

constexpr double kTop = 34, kBottom = 44, kRight = 60, kRow = 24;

}  // namespace

std::string to_svg(const BarChart& chart) {
  double name_width = 0, low = 0, high = 0;
  for (const Bar& bar : chart.bars) {
    name_width = std::max(name_width, text_width(bar.name, 12));
    for (const double value : {bar.value, bar.low.value_or(bar.value), bar.high.value_or(bar.value)}) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const double left = std::min(name_width + 22, chart.width / 2);
  double top = kTop;
  const std::string title = svg_title(chart.title, chart.width, top);
  const double bottom = top + kRow * static_cast<double>(chart.bars.size());
  std::string svg = svg_begin(chart.width, bottom + kBottom, chart.title) + title;
  Axis axis = chart.value;
  axis.includes_zero = true;
  const AxisMap x(axis, low, high, left, chart.width - kRight, chart.width < kWide / 1.5 ? 3 : 5);
  for (const double tick : x.ticks()) {
    svg += svg_line(x.pixel(tick), top, x.pixel(tick), bottom, Ink::kGrid);
    svg += svg_text(x.pixel(tick), bottom + 16, x.label(tick), {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  }
  double y = top;
  for (const Bar& bar : chart.bars) {
    const double middle = y + kRow / 2;
    svg += svg_fitted_text(left - 8, middle + 4, bar.name, left - 14, {.anchor = Anchor::kEnd});
    y += kRow;
    if (!std::isfinite(bar.value)) continue;
    const double from = std::min(x.pixel(0), x.pixel(bar.value)), to = std::max(x.pixel(0), x.pixel(bar.value));
    svg += "<rect x=\"" + number(from) + "\" y=\"" + number(middle - 8) + "\" width=\"" + number(to - from) +
           "\" height=\"16\" rx=\"2\" style=\"fill:" + series_colour(bar.colour) + "\"><title>" +
           escaped(bar.name + ": " + x.label(bar.value)) + "</title></rect>\n";
    double label_at = to;
    if (bar.low && bar.high && std::isfinite(*bar.low) && std::isfinite(*bar.high)) {
      svg += svg_line(x.pixel(*bar.low), middle, x.pixel(*bar.high), middle, Ink::kText);
      label_at = std::max(label_at, x.pixel(*bar.high));
    }
    svg += svg_text(label_at + 6, middle + 4, x.label(bar.value), {.ink = Ink::kMuted});
  }
  svg += svg_line(x.pixel(0), top, x.pixel(0), bottom, Ink::kLine);
  svg += svg_fitted_text(chart.width / 2, bottom + 36, chart.value.label, chart.width - 16,
                         {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  return svg + svg_end();
}

}  // namespace winnow::charts
