#include "cli/text_table.h"

#include <algorithm>
#include <cassert>

#include "base/utf8.h"
#include "cli/command_line.h"

namespace winnow::cli {
std::string padded_cell(const std::string& text, std::size_t width, Align align) {
  const std::string padding(width - std::min(width, count_characters(text)), ' ');
  return align == Align::kLeft ? text + padding : padding + text;
}

void TextTable::row(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = count_characters(columns_[i].title);
    for (const auto& cells : rows_) width = std::max(width, count_characters(cells[i]));
    widths.push_back(width);
  }
  return widths;
}

std::string TextTable::plain(std::size_t width) const {
  const std::vector<std::size_t> column_widths = widths();
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += "  ";
      const bool last = i + 1 == cells.size();
      if (last && columns_[i].align == Align::kLeft) {
        text += wrap_text(cells[i], width, count_characters(text));
      } else {
        text += padded_cell(cells[i], column_widths[i], columns_[i].align);
      }
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string text = line(titles);
  for (const auto& cells : rows_) text += line(cells);
  return text;
}

}  // namespace winnow::cli
