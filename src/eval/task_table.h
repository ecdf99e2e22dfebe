// The rows of tasks.json: a task's prompt, limit and metric. A new task of a known form is a row there.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace winnow::eval {

// One benchmark's rows, or another table of that file.
const nlohmann::json& task_table(std::string_view benchmark);

// The names of a table's rows.
std::vector<std::string> task_names(std::string_view benchmark);

// A string of a row, "" where the row has none.
std::string row_text(const nlohmann::json& row, const char* key);

using Fields = std::map<std::string, std::string, std::less<>>;
// The template with every {name} that is a field replaced, in one pass: braces of inserted text stay, and so do those
// around anything else.
std::string fill(std::string_view text, const Fields& fields);

// What the row says of every sample of its task, and one turn with its question, prefix, limit and metric.
Sample sample_of_row(const nlohmann::json& row, const Fields& fields);

// The tasks that are asked for, all of them if none is named. Throws Error(kNotFound) for an unknown one.
std::vector<std::string> selected_tasks(const SampleOptions& options, const std::vector<std::string>& all,
                                        std::string_view benchmark);

}  // namespace winnow::eval
