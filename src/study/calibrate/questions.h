// Questions that are asked about a calibration's contexts.
#pragma once

#include <string>
#include <vector>

namespace winnow {

// Some that can be asked about any text.
const std::vector<std::string>& generic_questions();

// A JSON object a line, with the question in "question"; other fields are left alone, empty lines skipped. Throws
// Error(kIo), or Error(kBadFile) with the line and what is wrong.
std::vector<std::string> read_questions(const std::string& path);

}  // namespace winnow
