#include "eval/benchmarks/needlebench_data.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/json_file.h"
#include "eval/sample_files.h"
#include "eval/shipped.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSource = " (Hugging Face opencompass/NeedleBench)";

Needle needle_of(const Record& record) {
  return {record.text("language"), record.text("arg2"), record.text("needle"), record.text("retrieval_question")};
}

std::vector<std::string> names_of(const NeedleData& data, const std::string& language) {
  std::vector<std::string> names;
  std::istringstream list(data.names.value(language, std::string()));
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

std::string before(const std::string& text, std::string_view end) { return text.substr(0, text.find(end)); }

}  // namespace

NeedleData read_needle_data(const SampleOptions& options) {
  NeedleData data;
  if (options.data.empty()) {
    std::istringstream lines{std::string(shipped_file("needlebench/needles.jsonl"))};
    for (std::string line; std::getline(lines, line);)
      data.needles.push_back(needle_of({nlohmann::json::parse(line), 0}));
    data.names = nlohmann::json::parse(shipped_file("needlebench/names.json"));
    return data;
  }
  const fs::path folder = options.data;
  for (const char* name : {"needles.jsonl", "names.json"}) {
    if (!fs::is_regular_file(folder / name)) {
      throw Error(ErrorCode::kNotFound, "there is no " + std::string(name) + kSource + " in '" + options.data +
                                            "': without --data winnow's own needles are used");
    }
  }
  read_jsonl(folder / "needles.jsonl", options, [&](const Record& record) {
    data.needles.push_back(needle_of(record));
    return true;
  });
  const std::string names_path = (folder / "names.json").string();
  data.names = read_json(names_path, input::kDataset);
  const bool has_names =
      data.names.is_object() &&
      std::all_of(data.names.begin(), data.names.end(), [](const nlohmann::json& names) { return names.is_string(); });
  if (!has_names) {
    refuse_file(names_path, "is not a JSON object that has, for each language, a text of names joined by commas");
  }
  return data;
}

std::vector<Needle> draw_needles(const NeedleData& data, const std::string& language, std::size_t n, Random& random) {
  std::vector<Needle> all;
  for (const Needle& needle : data.needles) {
    if (needle.language == language) all.push_back(needle);
  }
  if (all.size() < n) {
    throw Error(ErrorCode::kInvalidArgument, "there are only " + std::to_string(all.size()) + " needles in " +
                                                 language + " for " + std::to_string(n) + " depths: name fewer depths");
  }
  random.shuffle(all);
  all.resize(n);
  return all;
}

Chain draw_chain(const NeedleData& data, const std::string& language, std::size_t n_facts, Random& random) {
  const std::vector<std::string> names = names_of(data, language);
  if (names.size() <= n_facts) {
    throw Error(ErrorCode::kInvalidArgument,
                "a chain of " + std::to_string(n_facts) + " facts needs more names in " + language);
  }
  Chain chain;
  for (const std::size_t i : random.distinct(n_facts + 1, names.size())) chain.names.push_back(names[i]);
  for (const nlohmann::json& words : task_table("needlebench_words")) {
    if (words.at("language") != language) continue;
    const auto templates = words.at("templates").get<std::vector<std::string>>();
    const auto terms = words.at("terms").get<std::vector<std::string>>();
    for (std::size_t i = 0; i < n_facts; ++i) {
      const std::string& form = random.one_of(templates);
      const std::string& term = random.one_of(terms);
      chain.facts.push_back(fill(form, {{"A", chain.names[i]}, {"B", chain.names[i + 1]}, {"relationship", term}}));
      chain.generations += words.at("generations").at(term).get<int>();
    }
  }
  random.shuffle(chain.facts);
  return chain;
}

std::string joined_questions(const std::vector<Needle>& needles, const nlohmann::json& row) {
  const bool english = row.at("language") == "English";
  std::string questions, formats;
  for (const Needle& needle : needles) {
    const std::string_view between = questions.empty() ? "" : "、";
    const std::string_view mark = english ? "?" : "？";
    questions += std::string(between) + before(needle.question, mark) + std::string(mark);
    const std::size_t quote = needle.question.find('\'');
    const std::string quoted = quote == std::string::npos ? "" : before(needle.question.substr(quote + 1), "'");
    formats += std::string(between) + before(quoted, english ? "." : "。");
  }
  return questions + row_text(row, "format_before") + formats + row_text(row, "format_after");
}

}  // namespace winnow::eval
