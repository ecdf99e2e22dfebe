// The rows of tasks.json: a task's prompt, limit and metric. A new task of a known form needs only a row there.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace winnow::eval {

// Returns the rows of a benchmark, or another table of that file.
const nlohmann::json& task_table(std::string_view benchmark);

// Returns the names of a table's rows.
std::vector<std::string> task_names(std::string_view benchmark);

// Returns a string of a row, "" if the row has none.
std::string row_text(const nlohmann::json& row, const char* key);

using Fields = std::map<std::string, std::string, std::less<>>;
// Returns the template with every {name} that is a field replaced, in one pass: braces in inserted text, and those
// around anything else, stay.
std::string fill(std::string_view text, const Fields& fields);

// Returns a sample with the row's settings and one turn with its question, prefix, limit and metric.
Sample sample_of_row(const nlohmann::json& row, const Fields& fields);

// Returns the tasks that the options name, or all of them if they name none. Throws Error(kNotFound) for an unknown
// one.
std::vector<std::string> selected_tasks(const SampleOptions& options, const std::vector<std::string>& all,
                                        std::string_view benchmark);

}  // namespace winnow::eval
