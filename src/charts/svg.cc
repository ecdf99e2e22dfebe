#include "charts/svg.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace winnow::charts {
namespace {

constexpr std::size_t kColours = 8;

// Okabe and Ito's palette, which colour-blind readers can tell apart, with its yellow and sky darkened for white paper.
constexpr std::array<const char*, kColours> kLight = {"#0072b2", "#d55e00", "#009e73", "#b2529b",
                                                      "#b8860b", "#3a9bd0", "#7a4b2a", "#555555"};

std::string attribute(const char* name, std::string_view value) {
  return std::string(" ") + name + "=\"" + std::string(value) + "\"";
}

std::string attribute(const char* name, double value) { return attribute(name, number(value)); }

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // XML allows no other control characters, not even escaped, so they become spaces.
        out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' && c != '\r' ? ' ' : c;
    }
  }
  return out;
}

std::string number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string out = text;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.ends_with('.')) out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string label_of(double value, bool is_short) {
  char text[64];
  if (is_short && std::abs(value) >= 1000 && std::fmod(value, 100) == 0) {
    std::snprintf(text, sizeof text, "%.4gk", value / 1000);
  } else if (std::abs(value) >= 1000 && std::abs(value) < 1e6) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.3g", value);
  }
  return text;
}

std::string ink(Ink ink) {
  switch (ink) {
    case Ink::kText:
      return "var(--text,#1c1c1e)";
    case Ink::kMuted:
      return "var(--muted,#63636a)";
    case Ink::kLine:
      return "var(--line,#8a8a90)";
    case Ink::kGrid:
      return "var(--grid,#e4e4e8)";
    case Ink::kSurface:
      break;
  }
  return "var(--surface,#ffffff)";
}

std::string series_colour(std::size_t index) {
  const std::size_t place = index % kColours;
  return "var(--series-" + std::to_string(place + 1) + "," + kLight[place] + ")";
}

std::string series_dash(std::size_t index) {
  constexpr std::array<const char*, 4> kDashes = {"none", "6 3", "2 3", "8 3 2 3"};
  return kDashes[index / kColours % kDashes.size()];
}

double text_width(std::string_view text, double font_size) {
  double width = 0;
  for (const char c : text) {
    if (continues_character(c)) continue;
    const std::string_view narrow = " .,:;|'()[]-ijlftrI/", wide = "mwMW%@+=";
    const bool is_narrow = narrow.find(c) != std::string_view::npos, is_wide = wide.find(c) != std::string_view::npos;
    width += is_narrow ? 0.42 : is_wide ? 0.97 : c >= 'A' && c <= 'Z' ? 0.76 : 0.64;
  }
  return width * font_size;
}

std::string fitted(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const auto is_inside = [&](std::size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  // The part that is left out grows in the middle: `begin` bytes stay before it, and the rest from `end` on.
  std::size_t begin = text.size() / 2, end = begin;
  for (bool at_front = true; begin > 0 || end < text.size(); at_front = !at_front) {
    if ((at_front && begin > 0) || end == text.size()) {
      for (--begin; is_inside(begin); --begin) {
      }
    } else {
      for (++end; is_inside(end); ++end) {
      }
    }
    std::string shorter = std::string(text.substr(0, begin)) + "\xE2\x80\xA6" + std::string(text.substr(end));
    if (text_width(shorter, font_size) <= width) return shorter;
  }
  return "";
}

std::string svg_begin(double width, double height, std::string_view title) {
  const std::string name = escaped(title);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"" + name + "\" viewBox=\"0 0 " +
         number(width) + " " + number(height) + "\" width=\"" + number(width) + "\" height=\"" + number(height) +
         "\" style=\"background:" + ink(Ink::kSurface) +
         "\" font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif\">"
         "<title>" +
         name + "</title>\n";
}

std::string svg_end() { return "</svg>\n"; }

std::string svg_text(double x, double y, std::string_view text, const TextStyle& style) {
  const char* const anchors[] = {"start", "middle", "end"};
  return "<text" + attribute("x", x) + attribute("y", y) + attribute("font-size", style.size) +
         attribute("text-anchor", anchors[static_cast<int>(style.anchor)]) +
         (style.is_bold ? attribute("font-weight", "600") : "") + " style=\"fill:" + ink(style.ink) + "\">" +
         escaped(text) + "</text>\n";
}

std::string svg_fitted_text(double x, double y, std::string_view text, double width, const TextStyle& style) {
  const std::string shown = fitted(text, style.size, width);
  std::string svg = svg_text(x, y, shown, style);
  if (shown != text) svg.insert(svg.rfind("</text>"), "<title>" + escaped(text) + "</title>");
  return svg;
}

std::string svg_title(std::string_view text, double width, double& height) {
  constexpr double kLeft = 12, kLine = 18;
  constexpr TextStyle kStyle = {.size = 14, .is_bold = true};
  const double room = (width - 2 * kLeft) * 0.93;  // bold is wider
  std::string svg;
  double y = 20;
  for (;;) {
    std::size_t end = text.size();
    while (text_width(text.substr(0, end), kStyle.size) > room) {
      const std::size_t space = text.rfind(' ', end - 1);
      if (space == std::string_view::npos || space == 0) break;
      end = space;
    }
    svg += svg_fitted_text(kLeft, y, text.substr(0, end), room, kStyle);
    if (end >= text.size()) return svg;
    text.remove_prefix(end + 1);
    y += kLine;
    height += kLine;
  }
}

std::string svg_line(double x1, double y1, double x2, double y2, Ink colour) {
  return "<line" + attribute("x1", x1) + attribute("y1", y1) + attribute("x2", x2) + attribute("y2", y2) +
         " style=\"stroke:" + ink(colour) + ";stroke-width:1\"/>\n";
}

std::string svg_marker(std::size_t index, double x, double y, std::string_view tooltip) {
  const bool is_hollow = index / kColours % 2 == 1;
  const std::string colour = series_colour(index), surface = ink(Ink::kSurface);
  const std::string style = " style=\"fill:" + (is_hollow ? surface : colour) +
                            ";stroke:" + (is_hollow ? colour + ";stroke-width:1.5" : surface) + "\"";
  const std::string title = "<title>" + escaped(tooltip) + "</title>";
  const std::size_t shape = index % kColours;
  if (shape == 0) {
    return "<circle" + attribute("cx", x) + attribute("cy", y) + " r=\"4\"" + style + ">" + title + "</circle>\n";
  }
  if (shape == 1) {
    return "<rect" + attribute("x", x - 3.7) + attribute("y", y - 3.7) + " width=\"7.4\" height=\"7.4\"" + style + ">" +
           title + "</rect>\n";
  }
  using Corners = std::vector<std::pair<double, double>>;
  static const std::array<Corners, kColours - 2> kShapes = {{
      {{0, -5}, {4.8, 3.6}, {-4.8, 3.6}},   // a triangle
      {{0, -5}, {5, 0}, {0, 5}, {-5, 0}},   // a diamond
      {{0, 5}, {4.8, -3.6}, {-4.8, -3.6}},  // a triangle on its head
      {{-1.7, -5},
       {1.7, -5},
       {1.7, -1.7},
       {5, -1.7},
       {5, 1.7},
       {1.7, 1.7},
       {1.7, 5},
       {-1.7, 5},
       {-1.7, 1.7},
       {-5, 1.7},
       {-5, -1.7},
       {-1.7, -1.7}},  // a plus
      {{-4.7, -2.3},
       {-2.3, -4.7},
       {0, -2.4},
       {2.3, -4.7},
       {4.7, -2.3},
       {2.4, 0},
       {4.7, 2.3},
       {2.3, 4.7},
       {0, 2.4},
       {-2.3, 4.7},
       {-4.7, 2.3},
       {-2.4, 0}},  // a cross
      {{0, -5.5},
       {1.4, -1.9},
       {5.2, -1.7},
       {2.2, 0.7},
       {3.2, 4.4},
       {0, 2.3},
       {-3.2, 4.4},
       {-2.2, 0.7},
       {-5.2, -1.7},
       {-1.4, -1.9}},  // a star
  }};
  std::string points;
  for (const auto& [dx, dy] : kShapes[shape - 2]) {
    points += (points.empty() ? "" : " ") + number(x + dx) + "," + number(y + dy);
  }
  return "<polygon points=\"" + points + "\"" + style + ">" + title + "</polygon>\n";
}

}  // namespace winnow::charts
