// Pieces of SVG. Colours are CSS variables with the light theme's values as fallbacks, so that a chart inside a page
// (page.h) follows its theme, and a file is complete by itself.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace winnow::charts {

// Escapes text for the content and the attributes of HTML and SVG.
std::string escaped(std::string_view text);

// Returns a short text such as "12.5", without trailing zeros, never in exponent form for sizes that charts have.
std::string number(double value);

// Returns the text of a number on an axis or in a cell: 3 significant digits, thousands as "2k" if `is_short`.
std::string label_of(double value, bool is_short = false);

// The colours of a page. ink() returns one for style attributes.
enum class Ink { kText, kMuted, kLine, kGrid, kSurface };
std::string ink(Ink ink);

// Return the look of series `index`. Each of the first eight has a colour and a marker of its own; the next eight
// repeat them dashed and hollow, further ones with other dashes. No two of 32 look the same, with or without colours.
std::string series_colour(std::size_t index);
std::string series_dash(std::size_t index);  // stroke-dasharray, "none" for the first eight

// Returns the width of a text of this size in a system's sans-serif, estimated roughly and rather too large.
double text_width(std::string_view text, double font_size);
// Returns the text, or its beginning and end around an ellipsis, to fit `width` pixels.
std::string fitted(std::string_view text, double font_size, double width);

// Return `<svg ...>` with a title for screen readers, and its end.
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
// Returns the text, without its middle if it is wider than `width`; a tooltip then has all of it.
std::string svg_fitted_text(double x, double y, std::string_view text, double width, const TextStyle& style = {});
// Returns a chart's title at its top, in as many lines as needed. Adds the height of the lines after the first to
// `height`.
std::string svg_title(std::string_view text, double width, double& height);
std::string svg_line(double x1, double y1, double x2, double y2, Ink ink);

// Returns the marker of series `index` around a point, with a tooltip. Markers are at most 11 pixels wide and high.
std::string svg_marker(std::size_t index, double x, double y, std::string_view tooltip);

}  // namespace winnow::charts
