#include <nlohmann/json.hpp>

#include "eval/benchmarks/all.h"
#include "eval/sample_files.h"
#include "eval/task_table.h"

namespace winnow::eval {
namespace {

// Returns LongBench-E's bucket of a length in words (characters in Chinese).
std::string length_bucket(double length) { return length < 4000 ? "0-4k" : length < 8000 ? "4-8k" : "8k+"; }

// LongBench and LongBench-E: the same prompts and metrics, other files, and means by length.
class LongBench : public Benchmark {
 public:
  explicit LongBench(bool by_length) : by_length_(by_length) {}

  std::string_view name() const override { return by_length_ ? "longbench-e" : "longbench"; }
  std::string_view summary() const override {
    return by_length_ ? "13 of LongBench's tasks, means by length" : "questions, summaries, few-shot, code: 21 tasks";
  }
  std::vector<std::string_view> inputs() const override { return {"data"}; }
  std::vector<std::string> tasks() const override {
    std::vector<std::string> names;
    for (const nlohmann::json& row : task_table("longbench")) {
      if (!by_length_ || row.value("in_e", false)) names.push_back(row.at("task"));
    }
    return names;
  }

  std::vector<Sample> samples(const SampleOptions& options) const override {
    std::vector<Sample> samples;
    const FileSource source = {"longbench", by_length_ ? "_e" : "", "Hugging Face THUDM/LongBench, data.zip"};
    read_task_files(options, *this, source,
                    [&](const nlohmann::json& row, const TaskFile& file) { read(row, file, options, samples); });
    return samples;
  }

 private:
  void read(const nlohmann::json& row, const TaskFile& file, const SampleOptions& options,
            std::vector<Sample>& samples) const {
    const std::size_t first = samples.size();
    read_jsonl(file.path, options, [&](const Record& record) {
      const std::string context = record.text("context");
      Sample sample = sample_of_row(row, {{"context", context}, {"input", record.text("input")}});
      Turn& turn = sample.turns[0];
      turn.references = record.texts("answers");
      if (turn.references.empty()) throw BadRecord("\"answers\" is empty");
      if (turn.metric == "class") turn.classes = record.texts("all_classes");
      sample.id = record.has("_id") ? record.text("_id") : std::to_string(record.line());
      sample.cluster = text_key(context);
      if (!record.at("length").is_number()) throw BadRecord("\"length\" is not a number");
      const double length = record.at("length");
      sample.coordinates["words"] = length;
      if (by_length_) sample.group = length_bucket(length);
      samples.push_back(std::move(sample));
      return options.limit == 0 || samples.size() < first + static_cast<std::size_t>(options.limit);
    });
    make_ids_unique(samples, first);
  }

  bool by_length_;
};

}  // namespace

const Benchmark& longbench() {
  static const LongBench benchmark(false);
  return benchmark;
}

const Benchmark& longbench_e() {
  static const LongBench benchmark(true);
  return benchmark;
}

}  // namespace winnow::eval
