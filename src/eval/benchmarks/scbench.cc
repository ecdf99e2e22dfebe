#include <nlohmann/json.hpp>

#include "eval/benchmarks/all.h"
#include "eval/benchmarks/question_fields.h"
#include "eval/sample_files.h"
#include "eval/task_table.h"

namespace winnow::eval {
namespace {

// A turn of a file's line, with the settings of its row.
struct RawTurn {
  std::string input, answer, metric;
  std::vector<std::string> references;
  Fields fields;
  int max_new = 0;
};

// Returns the row of a turn. Mixed tasks have a row for each kind of turn.
const nlohmann::json& part_of(const nlohmann::json& row, const nlohmann::json& turn) {
  if (!row.contains("parts")) return row;
  const std::string task = turn.value("task", std::string());
  for (const nlohmann::json& part : row.at("parts")) {
    if (part.at("task") == task) return part;
  }
  throw BadRecord("a turn of a mixed task has no known \"task\"");
}

RawTurn read_turn(const nlohmann::json& row, const nlohmann::json& value) {
  if (!value.is_object() || !value.contains("input") || !value.at("input").is_string() || !value.contains("answer")) {
    throw BadRecord("a turn of \"multi_turns\" lacks \"input\" or \"answer\"");
  }
  const nlohmann::json& part = part_of(row, value);
  RawTurn turn;
  turn.metric = part.at("metric");
  turn.max_new = part.at("max_new");
  turn.input = value.at("input");
  turn.fields = question_fields(turn.input);
  turn.references = texts_of(value.at("answer"), "answer");
  if (turn.references.empty()) throw BadRecord("a turn's \"answer\" is empty");
  turn.answer = turn.references[0];
  if (turn.metric == "scbench_choice") {
    const std::vector<std::string> options =
        value.contains("options") ? texts_of(value.at("options"), "options") : std::vector<std::string>();
    add_options(options, turn.fields);
    turn.references = choice_labels(turn.references, options);
  }
  if (turn.metric == "scbench_mf") turn.fields["prefix"] = asked_for(turn.input, " is", "?");
  return turn;
}

class ScBench : public Benchmark {
 public:
  std::string_view name() const override { return "scbench"; }
  std::string_view summary() const override { return "several questions on one shared context: 13 tasks"; }
  std::vector<std::string> tasks() const override { return task_names(name()); }
  std::vector<std::string_view> inputs() const override { return {"data"}; }

  std::vector<Sample> samples(const SampleOptions& options) const override {
    std::vector<Sample> samples;
    const FileSource source = {name(), "", "Hugging Face microsoft/SCBench"};
    read_task_files(options, *this, source,
                    [&](const nlohmann::json& row, const TaskFile& file) { read(row, file, options, samples); });
    return samples;
  }

 private:
  static void read(const nlohmann::json& row, const TaskFile& file, const SampleOptions& options,
                   std::vector<Sample>& samples) {
    const std::size_t first = samples.size();
    // RepoQA compares with every function that is asked for in the repository, so those are collected from all lines.
    std::map<std::string, std::vector<std::string>> functions;
    std::vector<std::string> repositories;
    bool full = false;
    read_jsonl(file.path, options, [&](const Record& record) {
      Sample sample = read_sample(row, record, options.multi_request);
      const std::string repository = record.has("repo") ? record.text("repo") : "";
      for (const Turn& turn : sample.turns) {
        if (turn.metric == "repoqa") functions[repository].push_back(turn.references[0]);
      }
      full = full || (options.limit > 0 && samples.size() >= first + static_cast<std::size_t>(options.limit));
      if (!full) {
        repositories.push_back(repository);
        samples.push_back(std::move(sample));
      }
      return !full || !functions.empty();
    });
    for (std::size_t i = first; i < samples.size(); ++i) {
      for (Turn& turn : samples[i].turns) {
        if (turn.metric == "repoqa") turn.classes = functions[repositories[i - first]];
      }
    }
    make_ids_unique(samples, first);
  }

  static Sample read_sample(const nlohmann::json& row, const Record& record, bool multi_request) {
    const nlohmann::json& values = record.at("multi_turns");
    if (!values.is_array() || values.empty()) throw BadRecord("\"multi_turns\" is not a list of turns");
    std::vector<RawTurn> turns;
    for (const nlohmann::json& value : values) turns.push_back(read_turn(row, value));

    const std::string context = record.text(record.has("context") ? "context" : "input");
    Fields context_fields = turns[0].fields;
    context_fields["context"] = context;
    Sample sample;
    sample.task = row.at("task");
    sample.id = record.id("id");
    sample.cluster = text_key(context);
    sample.context = fill(row_text(row, multi_request ? "request_context" : "context"), context_fields);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Turn turn;
      turn.references = turns[i].references;
      turn.metric = turns[i].metric;
      turn.max_new = turns[i].max_new;
      if (multi_request) {
        turn.question = fill(row_text(row, "request"), turns[i].fields);
      } else if (i == 0) {
        turn.question = fill(row_text(row, "question"), turns[i].fields);
      } else {
        turn.question = fill(row_text(row, "follow_up"), turns[i].fields);
        turn.follow_up = fill(row_text(row, "follow_up_lead"), {{"pre_ans", turns[i - 1].answer}}) + turn.question;
      }
      sample.turns.push_back(std::move(turn));
    }
    return sample;
  }
};

}  // namespace

const Benchmark& scbench() {
  static const ScBench benchmark;
  return benchmark;
}

}  // namespace winnow::eval
