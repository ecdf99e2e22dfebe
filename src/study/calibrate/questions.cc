#include "study/calibrate/questions.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json_file.h"

namespace winnow {

const std::vector<std::string>& generic_questions() {
  static const std::vector<std::string> questions = {
      "What happens in this text? Summarise it in a few sentences.",
      "Who are the persons in this text, and what does each of them want?",
      "Where does this take place? Describe the surroundings.",
      "What is said in the first part of the text?",
      "Which facts does the text state? List them.",
      "What do the persons talk about? Report the conversation.",
      "Quote the sentence that matters most, and say why.",
      "How does the text end, and what will probably come next?",
  };
  return questions;
}

std::vector<std::string> read_questions(const std::string& path) {
  std::istringstream lines(read_input(path, input::kQuestions));
  std::vector<std::string> questions;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto refuse = [&](const std::string& why) {
      refuse_file(path, "line " + std::to_string(number) + " " + why);
    };
    const std::optional<nlohmann::json> json = parse_flat_json(line);
    if (!json || !json->is_object()) refuse("is not a JSON object: write {\"question\": \"...\"}");
    const auto question = json->find("question");
    if (question == json->end()) refuse("has no field \"question\"");
    if (!question->is_string() || question->get<std::string>().find_first_not_of(" \t\r\n") == std::string::npos) {
      refuse("has a \"question\" that is not a text");
    }
    questions.push_back(question->get<std::string>());
  }
  if (questions.empty()) refuse_file(path, "has no questions: write one {\"question\": \"...\"} a line");
  return questions;
}

}  // namespace winnow
