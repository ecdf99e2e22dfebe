// Fields of the prompts that InfiniteBench and SCBench share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/task_table.h"

namespace winnow::eval {

// {input} and {question}, which are the same.
Fields question_fields(const std::string& input);

// {OPTION_A} to {OPTION_D}; throws BadRecord for fewer than four.
void add_options(const std::vector<std::string>& options, Fields& fields);

// The text of the right answer and its letter, from the text alone or both. Throws BadRecord if it is no option.
std::vector<std::string> choice_labels(const std::vector<std::string>& answer, const std::vector<std::string>& options);

// "What is " + what `The .+<end>` matches in the input, in lower case and without <end>, + `rest`.
std::string asked_for(const std::string& input, std::string_view end, std::string_view rest);

}  // namespace winnow::eval
