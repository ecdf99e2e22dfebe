// Renders an analysis as one self-contained HTML page: what each method keeps of the text, and what that costs.
#pragma once

#include <string>

#include "study/analysis/analysis.h"

namespace winnow {

std::string inspect_page(const Analysis& analysis);

}  // namespace winnow
