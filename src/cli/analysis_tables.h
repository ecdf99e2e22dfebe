// An analysis as tables for a terminal.
#pragma once

#include <string>

#include "study/analysis/analysis.h"

namespace winnow::cli {

// Returns the tables; with `layers` also those of the layers: attention, and entries kept by each cut.
std::string analysis_tables(const Analysis& analysis, bool layers);

}  // namespace winnow::cli
