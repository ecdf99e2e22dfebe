// Aligned columns of text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace winnow::cli {

enum class Align { kLeft, kRight };

// Returns the text, filled with spaces up to `width` characters (not bytes).
std::string padded_cell(const std::string& text, std::size_t width, Align align);

class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds a row with one cell per column.
  void row(std::vector<std::string> cells);

  // Returns the table with two spaces between columns; the last column, if left-aligned, is wrapped at `width`.
  std::string plain(std::size_t width = 80) const;

 private:
  std::vector<std::size_t> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace winnow::cli
