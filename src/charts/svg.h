// Pieces of SVG. Colours are CSS variables with the light theme's values to fall back on: inside a page (page.h) a
// chart follows its theme, and the file by itself is complete.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace winnow::charts {

// Text for the content and the attributes of HTML and SVG.
std::string escaped(std::string_view text);

// "12.5": short, without trailing zeros, never in exponent form for sizes that charts have.
std::string number(double value);

// A number on an axis or in a cell: 3 significant digits, thousands as "2k" where `is_short`.
std::string label_of(double value, bool is_short = false);

// The colours of a page, for style attributes.
enum class Ink { kText, kMuted, kLine, kGrid, kSurface };
std::string ink(Ink ink);

// How series `index` looks. Each of the first eight has a colour and a marker of its own; the next eight repeat them
// dashed and hollow, further ones with other dashes: no two of 32 look the same, with colours or without.
std::string series_colour(std::size_t index);
std::string series_dash(std::size_t index);  // stroke-dasharray, "none" for the first eight

// Width of a text of this size, roughly, and rather too much: a system's sans-serif.
double text_width(std::string_view text, double font_size);
// The text, or its beginning and end around an ellipsis, in so many pixels.
std::string fitted(std::string_view text, double font_size, double width);

// `<svg ...>` with a title for screen readers, and its end.
std::string svg_begin(double width, double height, std::string_view title);
std::string svg_end();

enum class Anchor { kStart, kMiddle, kEnd };
struct TextStyle {
  double size = 12;
  Ink ink = Ink::kText;
  Anchor anchor = Anchor::kStart;
  bool is_bold = false;
};
std::string svg_text(double x, double y, std::string_view text, const TextStyle& style = {});
// The text with its middle left out if it is wider than `width`; then with all of it as a tooltip.
std::string svg_fitted_text(double x, double y, std::string_view text, double width, const TextStyle& style = {});
// A chart's title at its top, in as many lines as it takes. Adds the height of the lines after the first to `height`.
std::string svg_title(std::string_view text, double width, double& height);
std::string svg_line(double x1, double y1, double x2, double y2, Ink ink);

// The marker of series `index` around a point, with a tooltip. Markers are at most 11 pixels wide and high.
std::string svg_marker(std::size_t index, double x, double y, std::string_view tooltip);

}  // namespace winnow::charts
