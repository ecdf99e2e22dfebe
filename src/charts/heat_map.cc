#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "charts/charts.h"
#include "charts/svg.h"

namespace winnow::charts {
namespace {

constexpr double kTop = 34, kBottom = 44, kRight = 16;

// ColorBrewer's YlGnBu. Its lightness falls evenly, so it survives grey printing and colour blindness.
constexpr std::array<std::array<int, 3>, 6> kRamp = {
    {{255, 255, 217}, {199, 233, 180}, {127, 205, 187}, {65, 182, 196}, {34, 94, 168}, {8, 29, 88}}};

std::array<double, 3> ramp(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (kRamp.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), kRamp.size() - 2);
  std::array<double, 3> colour{};
  for (std::size_t c = 0; c < 3; ++c) {
    colour[c] = kRamp[below][c] + (place - static_cast<double>(below)) * (kRamp[below + 1][c] - kRamp[below][c]);
  }
  return colour;
}

std::string rgb(const std::array<double, 3>& colour) {
  char text[32];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", static_cast<int>(colour[0]), static_cast<int>(colour[1]),
                static_cast<int>(colour[2]));
  return text;
}

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

std::string to_svg(const HeatMap& chart) {
  double name_width = 0, column_width = 0;
  for (const std::string& row : chart.rows) name_width = std::max(name_width, text_width(row, 12));
  for (const std::string& column : chart.columns) column_width = std::max(column_width, text_width(column, 12));
  const double left = 40 + name_width;
  double top = kTop;
  const std::string title = svg_title(chart.title, chart.width, top);
  const double cell_width =
      (chart.width - left - kRight) / static_cast<double>(std::max<std::size_t>(chart.columns.size(), 1));
  const double cell_height =
      std::clamp(280.0 / static_cast<double>(std::max<std::size_t>(chart.rows.size(), 1)), 12.0, 30.0);
  const double bottom = top + cell_height * static_cast<double>(chart.rows.size());
  std::string svg = svg_begin(chart.width, bottom + kBottom, chart.title) + title;
  const auto every = static_cast<std::size_t>(std::ceil((column_width + 8) / cell_width));
  for (std::size_t c = 0; c < chart.columns.size(); c += std::max<std::size_t>(every, 1)) {
    svg += svg_text(left + (static_cast<double>(c) + 0.5) * cell_width, bottom + 16, chart.columns[c],
                    {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  }
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const double y = top + static_cast<double>(r) * cell_height;
    svg += svg_text(left - 6, y + cell_height / 2 + 4, chart.rows[r], {.ink = Ink::kMuted, .anchor = Anchor::kEnd});
    for (std::size_t c = 0; c < chart.columns.size(); ++c) {
      const std::optional<double>& cell = chart.cells[r][c];
      const double x = left + static_cast<double>(c) * cell_width;
      const double share = cell ? (*cell - chart.low) / (chart.high - chart.low) : 0;
      const std::array<double, 3> colour = ramp(share);
      svg +=
          "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(cell_width) + "\" height=\"" +
          number(cell_height) + "\" style=\"fill:" + (cell ? rgb(colour) : ink(Ink::kGrid)) +
          ";stroke:" + ink(Ink::kSurface) + "\"><title>" +
          escaped(chart.rows[r] + ", " + chart.columns[c] + ": " + (cell ? fixed(*cell, chart.decimals) : "no data")) +
          "</title></rect>\n";
      if (!cell || !chart.shows_numbers) continue;
      const std::string text = fixed(*cell, chart.decimals);
      if (text_width(text, 11) + 4 > cell_width) continue;
      const double luminance = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
      svg += "<text x=\"" + number(x + cell_width / 2) + "\" y=\"" + number(y + cell_height / 2 + 4) +
             "\" font-size=\"11\" text-anchor=\"middle\" pointer-events=\"none\" fill=\"" +
             (luminance > 140 ? "#111111" : "#ffffff") + "\">" + text + "</text>\n";
    }
  }
  svg += svg_text((left + chart.width - kRight) / 2, bottom + 36, chart.x_label,
                  {.ink = Ink::kMuted, .anchor = Anchor::kMiddle});
  svg += "<g transform=\"translate(15 " + number((top + bottom) / 2) + ") rotate(-90)\">" +
         svg_text(0, 0, chart.y_label, {.ink = Ink::kMuted, .anchor = Anchor::kMiddle}) + "</g>\n";
  return svg + svg_end();
}

}  // namespace winnow::charts
