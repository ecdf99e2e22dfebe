#include "eval/benchmarks/question_fields.h"

#include <algorithm>

#include "eval/python_str.h"
#include "eval/sample_files.h"

namespace winnow::eval {

Fields question_fields(const std::string& input) { return {{"input", input}, {"question", input}}; }

void add_options(const std::vector<std::string>& options, Fields& fields) {
  if (options.size() < 4) throw BadRecord("\"options\" has fewer than four entries");
  for (std::size_t i = 0; i < 4; ++i) fields[std::string("OPTION_") + "ABCD"[i]] = options[i];
}

std::vector<std::string> choice_labels(const std::vector<std::string>& answer,
                                       const std::vector<std::string>& options) {
  if (answer.empty()) throw BadRecord("\"answer\" is empty");
  if (answer.size() == 2 && answer[1].size() == 1 && answer[1][0] >= 'A' && answer[1][0] <= 'D') return answer;
  const auto found = std::find(options.begin(), options.end(), answer[0]);
  if (found == options.end() || found - options.begin() >= 4) throw BadRecord("\"answer\" is not among \"options\"");
  return {answer[0], std::string(1, "ABCD"[found - options.begin()])};
}

std::string asked_for(const std::string& input, std::string_view end, std::string_view rest) {
  constexpr std::string_view kThe = "The ";
  for (std::size_t at = input.find(kThe); at != std::string::npos; at = input.find(kThe, at + 1)) {
    const std::string line = input.substr(at, input.find('\n', at) - at);
    const std::size_t last = line.rfind(end);
    if (last == std::string::npos || last <= kThe.size()) continue;
    return "What is " + encode(lower(decode(line.substr(0, last)))) + std::string(rest);
  }
  throw BadRecord("\"input\" does not say what is asked for: no \"The ...\"" + std::string(end));
}

}  // namespace winnow::eval
