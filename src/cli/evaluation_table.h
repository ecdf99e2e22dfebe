// The text that `winnow eval` prints when it ends.
#pragma once

#include <string>

namespace winnow::cli {

struct EvaluationTable {
  std::string text;
  bool has_success = false;  // at least one of the answers did not fail
};

// Returns a table for every benchmark and question mode of the run in the folder, with missing and failed answers
// below.
EvaluationTable evaluation_table(const std::string& folder);

}  // namespace winnow::cli
