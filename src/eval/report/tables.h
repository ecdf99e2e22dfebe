// A section's tables as rows of text, for every format of the report.
#pragma once

#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct TextGrid {
  std::string title;    // may be empty
  std::string comment;  // meaning of the numbers; may be empty
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::size_t n_left = 3;                      // left columns, which hold names
  std::vector<std::vector<bool>> strong = {};  // [row][column]; empty: none
};

TextGrid overview_grid(const Section& section);
// Returns the measure with a row for each method and a column for each budget; no rows if there is one budget. Rows
// differ by the methods' entry types, too: every table has them, in a column or in the methods' names.
TextGrid budget_grid(const Section& section);
// Returns the same at equal bytes, with a column for each round share of the full cache's bytes in f16 that is between
// those measured. A cell is the value measured within 5 % of that share; else, after a tilde, it is interpolated
// between the two neighbouring ones (linearly in the logarithm of the bytes, and of a KL). No rows if fewer than two
// shares have values.
TextGrid bytes_grid(const Section& section);
TextGrid kept_grid(const Section& section, KeptUnit by);  // returns bytes_grid or budget_grid
// Compares every method with this one (Variant::name) on the same samples, with a column for each budget. No rows if it
// was not run.
TextGrid against_grid(const Section& section, const std::string& variant);
TextGrid cost_grid(const Section& section);
std::vector<TextGrid> breakdown_grids(const Section& section);
std::vector<TextGrid> comparison_grids(const Section& section);

// Returns every mean of every section as CSV, a line for each task (and "all"), group or length, method and budget.
std::string csv(const std::vector<Section>& sections);

// Returns the whole report without plots; `against` is a method of against_grid, or empty.
std::string markdown(const Results& results, const std::vector<Section>& sections, const std::string& against = "",
                     KeptUnit by = KeptUnit::kEntries);

// Returns "1234 answers of SmolLM2 ..." and how many are missing.
std::vector<std::string> headline(const Results& results, const std::vector<Section>& sections);

}  // namespace winnow::eval
