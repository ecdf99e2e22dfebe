#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "eval/benchmarks/all.h"
#include "eval/benchmarks/question_fields.h"
#include "eval/sample_files.h"
#include "eval/task_table.h"

namespace winnow::eval {
namespace {

// Returns true for metrics that use every answer; the others use the first.
bool uses_all_answers(const std::string& metric) {
  return metric == "f1" || metric == "f1_zh_characters" || metric == "math_calc";
}

void add_function_call(const std::string& input, Fields& fields) {
  static const std::regex call(R"(func_[0-9]+\(-?[0-9]+\))");
  std::smatch match;
  if (!std::regex_search(input, match, call)) throw BadRecord("\"input\" calls no function such as func_1(2)");
  fields["func_call"] = match.str();
  fields["func"] = match.str().substr(0, match.str().find('('));
}

class InfiniteBench : public Benchmark {
 public:
  std::string_view name() const override { return "infinitebench"; }
  std::string_view summary() const override { return "12 tasks of some 100,000 tokens"; }
  std::vector<std::string> tasks() const override { return task_names(name()); }
  std::vector<std::string_view> inputs() const override { return {"data"}; }

  std::vector<Sample> samples(const SampleOptions& options) const override {
    std::vector<Sample> samples;
    const FileSource source = {name(), "", "Hugging Face xinrongzhang2022/InfiniteBench"};
    read_task_files(options, *this, source, [&](nlohmann::json row, const TaskFile& file) {
      if (options.chat_prompts) {
        row["context"] = row.at("chat_context");
        row["question"] = row.at("chat_question");
        row["prefix"] = "";
      }
      read(row, file, options, samples);
    });
    return samples;
  }

 private:
  static void read(const nlohmann::json& row, const TaskFile& file, const SampleOptions& options,
                   std::vector<Sample>& samples) {
    const std::size_t first = samples.size();
    const std::string metric = row.at("metric");
    read_jsonl(file.path, options, [&](const Record& record) {
      const std::string context = record.text("context");
      const std::string input = record.text("input");
      Fields fields = question_fields(input);
      fields["context"] = context;
      std::vector<std::string> answers = record.texts("answer");
      if (metric == "choice" || metric == "code_debug") {
        const std::vector<std::string> choices = record.texts("options");
        add_options(choices, fields);
        answers = choice_labels(answers, choices);
      }
      if (metric == "math_find") fields["prefix"] = asked_for(input, " of", " in the following list?");
      if (metric == "code_run") add_function_call(input, fields);
      if (answers.empty()) throw BadRecord("\"answer\" is empty");
      if (!uses_all_answers(metric) && metric != "choice" && metric != "code_debug") answers.resize(1);
      Sample sample = sample_of_row(row, fields);
      sample.turns[0].references = std::move(answers);
      sample.id = record.id("id");
      sample.cluster = text_key(context);
      samples.push_back(std::move(sample));
      return options.limit == 0 || samples.size() < first + static_cast<std::size_t>(options.limit);
    });
    make_ids_unique(samples, first);
  }
};

}  // namespace

const Benchmark& infinitebench() {
  static const InfiniteBench benchmark;
  return benchmark;
}

}  // namespace winnow::eval
