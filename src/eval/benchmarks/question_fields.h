// Fields of the prompts that InfiniteBench and SCBench share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/task_table.h"

namespace winnow::eval {

// Returns the fields {input} and {question}, which have the same text.
Fields question_fields(const std::string& input);

// Adds the fields {OPTION_A} to {OPTION_D}; throws BadRecord for fewer than four options.
void add_options(const std::vector<std::string>& options, Fields& fields);

// Returns the text of the right answer and its letter; `answer` has the text, or both. Throws BadRecord if it is no
// option.
std::vector<std::string> choice_labels(const std::vector<std::string>& answer, const std::vector<std::string>& options);

// Returns "What is " + the match of `The .+<end>` in the input, in lower case and without <end>, + `rest`. Throws
// BadRecord without a match.
std::string asked_for(const std::string& input, std::string_view end, std::string_view rest);

}  // namespace winnow::eval
