// An analysis as JSON and CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/analysis/analysis.h"

namespace winnow {

// Returns the fields that docs/analysis.md describes. Numbers have 7 significant digits.
nlohmann::ordered_json analysis_json(const Analysis& analysis);

// Returns a row for every cut, layer and query head; a value of a whole layer or KV head is repeated.
std::string analysis_csv(const Analysis& analysis);

}  // namespace winnow
