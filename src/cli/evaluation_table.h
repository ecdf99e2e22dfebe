// What `winnow eval` prints when it ends.
#pragma once

#include <string>

namespace winnow::cli {

// A table for every benchmark and question mode of the run in the folder, with what is missing or failed below.
std::string evaluation_table(const std::string& folder);

}  // namespace winnow::cli
