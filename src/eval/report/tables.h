// A section's tables as rows of text, for every format of the report.
#pragma once

#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct TextGrid {
  std::string title;    // may be empty
  std::string comment;  // what the numbers are; may be empty
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::size_t n_left = 3;                      // columns of names
  std::vector<std::vector<bool>> strong = {};  // [row][column]; empty: none
};

TextGrid overview_grid(const Section& section);
// The measure with a row for each method and a column for each budget; no rows where there is one budget. Methods are
// told apart by their entry types, too: every table has them, in a column or in the methods' names.
TextGrid budget_grid(const Section& section);
// The same at equal bytes, a column for each round part of the full cache's in f16 that is between those measured: what
// was measured within 5 % of it, else, after a tilde, the line between the two measured beside it (straight in the
// logarithm of the bytes, and of a KL). No rows where no method has two budgets.
TextGrid bytes_grid(const Section& section);
TextGrid kept_grid(const Section& section, KeptUnit by);  // one of the two
// Every method against this one (Variant::name), on the same samples: a column for each budget. No rows where it was
// not run.
TextGrid against_grid(const Section& section, const std::string& variant);
TextGrid cost_grid(const Section& section);
std::vector<TextGrid> breakdown_grids(const Section& section);
std::vector<TextGrid> comparison_grids(const Section& section);

// Every mean of every section: a line for each task (and "all"), method and budget.
std::string csv(const std::vector<Section>& sections);

// The whole report without plots; `against` is a method of against_grid, or empty.
std::string markdown(const Results& results, const std::vector<Section>& sections, const std::string& against = "",
                     KeptUnit by = KeptUnit::kEntries);

// "1,234 answers of SmolLM2 ..." and what is missing.
std::vector<std::string> headline(const Results& results, const std::vector<Section>& sections);

}  // namespace winnow::eval
