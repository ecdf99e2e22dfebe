#include "eval/task_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/nearest_name.h"
#include "eval/shipped.h"
#include "winnow/error.h"

namespace winnow::eval {

const nlohmann::json& task_table(std::string_view benchmark) {
  static const nlohmann::json tables = nlohmann::json::parse(shipped_file("tasks.json"));
  return tables.at(std::string(benchmark));
}

std::vector<std::string> task_names(std::string_view benchmark) {
  std::vector<std::string> names;
  for (const nlohmann::json& row : task_table(benchmark)) names.push_back(row.at("task"));
  return names;
}

std::string row_text(const nlohmann::json& row, const char* key) { return row.value(key, std::string()); }

std::string fill(std::string_view text, const Fields& fields) {
  std::string filled;
  while (true) {
    const std::size_t open = text.find('{');
    filled += text.substr(0, open);
    if (open == std::string_view::npos) return filled;
    text.remove_prefix(open);
    const std::size_t close = text.find('}');
    const auto field = close == std::string_view::npos ? fields.end() : fields.find(text.substr(1, close - 1));
    if (field == fields.end()) {
      filled += '{';
      text.remove_prefix(1);
    } else {
      filled += field->second;
      text.remove_prefix(close + 1);
    }
  }
}

Sample sample_of_row(const nlohmann::json& row, const Fields& fields) {
  Sample sample;
  sample.task = row_text(row, "task");
  sample.context = fill(row_text(row, "context"), fields);
  sample.chat_template = row.value("chat_template", true);
  sample.stop_at_newline = row.value("stop_at_newline", false);
  sample.first_line_only = row.value("first_line", false);
  Turn turn;
  turn.question = fill(row_text(row, "question"), fields);
  turn.answer_prefix = fill(row_text(row, "prefix"), fields);
  turn.metric = row_text(row, "metric");
  turn.keyword = row_text(row, "keyword");
  turn.max_new = row.value("max_new", 0);
  sample.turns.push_back(std::move(turn));
  return sample;
}

std::vector<std::string> selected_tasks(const SampleOptions& options, const std::vector<std::string>& all,
                                        std::string_view benchmark) {
  for (const std::string& task : options.tasks) {
    if (std::find(all.begin(), all.end(), task) != all.end()) continue;
    const std::vector<std::string_view> names(all.begin(), all.end());
    throw Error(ErrorCode::kNotFound,
                "unknown task '" + task + "' of " + std::string(benchmark) + ": " + name_advice(task, names));
  }
  return options.tasks.empty() ? all : options.tasks;
}

}  // namespace winnow::eval
