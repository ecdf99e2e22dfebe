// The plots of a section.
#pragma once

#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct Figure {
  std::string name;         // name of a file, without ".svg"
  std::string svg, narrow;  // drawn charts::kWide (heat maps: charts::kNarrow) and charts::kNarrow
};

// Returns plots of the measure against what is kept (a share of the entries or of the bytes, and MiB) and, where it was
// measured, against the time of a token, and of the references' likelihood.
std::vector<Figure> quality_figures(const Section& section, KeptUnit by = KeptUnit::kEntries);
// Returns a plot of the time that the methods take to choose.
std::vector<Figure> speed_figures(const Section& section);
// Returns a heat map for every task, method and budget.
std::vector<Figure> needle_figures(const Section& section);

// Returns the text as a file name of letters, digits, '-' and '_' only.
std::string file_stem(const std::string& text);

}  // namespace winnow::eval
