// Questions that are asked about a calibration's contexts.
#pragma once

#include <string>
#include <vector>

namespace winnow {

// Returns questions that can be asked about any text.
const std::vector<std::string>& generic_questions();

// Reads a JSON object per line, with the question in "question"; ignores other fields and skips empty lines. Throws
// Error(kIo), or Error(kBadFile) with the line and what is wrong.
std::vector<std::string> read_questions(const std::string& path);

}  // namespace winnow
