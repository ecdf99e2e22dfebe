// The plots of a section.
#pragma once

#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace winnow::eval {

struct Figure {
  std::string name;         // of a file, without ".svg"; unique in the report
  std::string svg, narrow;  // drawn charts::kWide (needles: as narrow) and charts::kNarrow
};

// The measure against what is kept (a share of the entries or of the bytes, and MiB), the references' likelihood, the
// time of a token where it was measured.
std::vector<Figure> quality_figures(const Section& section, KeptUnit by = KeptUnit::kEntries);
// Time that the methods take to choose.
std::vector<Figure> speed_figures(const Section& section);
// A heat map for every task, method and budget.
std::vector<Figure> needle_figures(const Section& section);

// Letters, digits, '-' and '_' only.
std::string file_stem(const std::string& text);

}  // namespace winnow::eval
