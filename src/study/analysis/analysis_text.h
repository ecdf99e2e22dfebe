// An analysis as JSON and CSV.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/analysis/analysis.h"

namespace winnow {

// docs/analysis.md says what the fields mean. Numbers have 7 significant digits.
nlohmann::ordered_json analysis_json(const Analysis& analysis);

// A row for every cut, layer and query head; what is one number for a layer or a KV head is repeated.
std::string analysis_csv(const Analysis& analysis);

}  // namespace winnow
