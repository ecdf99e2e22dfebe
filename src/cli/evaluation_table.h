// The text that `winnow eval` prints when it ends.
#pragma once

#include <string>

namespace winnow::cli {

// Returns a table for every benchmark and question mode of the run in the folder, with missing and failed answers
// below.
std::string evaluation_table(const std::string& folder);

}  // namespace winnow::cli
