// A self-contained HTML page: light or dark like the reader's system, readable on a phone, without a network.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::charts {

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  // Starts a part with a heading, and a link to it at the top of the page.
  void section(const std::string& heading);
  void heading(const std::string& text);  // a heading below a section's
  void paragraph(const std::string& text);
  void note(const std::string& text);  // highlighted
  // Adds a chart of charts.h, drawn kWide and drawn kNarrow; the width of the screen decides which one is shown.
  void figure(const std::string& wide, const std::string& narrow);
  // Adds several charts drawn kNarrow, side by side if there is room.
  void figures(const std::vector<std::string>& svgs);

  // Adds a table. Cells are text; columns after the first `n_left` are right-aligned, and cells that begin with kStrong
  // are bold. A click on a column's title sorts the rows by it, by the numbers that its cells begin with if they do.
  void table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& rows,
             std::size_t n_left = 1);

  // Add HTML and script as they are.
  void raw(std::string_view html) { body_ += html; }
  void script(std::string_view code) { scripts_ += "<script>\n" + std::string(code) + "</script>\n"; }
  // Adds data for scripts: <script type="application/json" id="...">. `json` may contain anything.
  void data(const std::string& id, std::string_view json);
  void style(std::string_view css) { styles_ += css; }

  std::string html() const;

  static constexpr char kStrong = '\x01';

 private:
  std::string title_, body_, scripts_, styles_, links_;
  int n_sections_ = 0;
  bool has_tables_ = false;
};

}  // namespace winnow::charts
