// A self-contained HTML page: light or dark as the reader's system is, readable on a phone, without a network.
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
  void heading(const std::string& text);  // a smaller one
  void paragraph(const std::string& text);
  void note(const std::string& text);  // something to mind
  // A chart of charts.h drawn kWide and drawn kNarrow: which one is shown depends on the screen.
  void figure(const std::string& wide, const std::string& narrow);
  // Several drawn kNarrow, side by side where there is room.
  void figures(const std::vector<std::string>& svgs);

  // Cells are text. Columns after `n_left` are right-aligned. Cells that begin with kStrong are bold. A click on a
  // column's title sorts the rows by it: by the number that cells begin with, where they do.
  void table(const std::vector<std::string>& titles, const std::vector<std::vector<std::string>>& rows,
             std::size_t n_left = 1);

  // HTML and script as they are.
  void raw(std::string_view html) { body_ += html; }
  void script(std::string_view code) { scripts_ += "<script>\n" + std::string(code) + "</script>\n"; }
  // Data for scripts: <script type="application/json" id="...">. `json` may hold anything.
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
