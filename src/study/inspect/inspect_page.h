// An analysis as one HTML page that needs nothing else: what each method keeps of the text, beside what it costs.
#pragma once

#include <string>

#include "study/analysis/analysis.h"

namespace winnow {

std::string inspect_page(const Analysis& analysis);

}  // namespace winnow
