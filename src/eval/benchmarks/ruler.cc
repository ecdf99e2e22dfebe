#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "eval/benchmarks/all.h"
#include "eval/benchmarks/needle_text.h"
#include "eval/benchmarks/ruler_generator.h"
#include "eval/sample_files.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace fs = std::filesystem;
namespace {

// haystack, keys, values; numbers of keys, values, queries
constexpr auto kTasks = std::to_array<RulerTask>({
    {"niah_single_1", "niah", "noise", "words", "numbers"},
    {"niah_single_2", "niah", "essay", "words", "numbers"},
    {"niah_single_3", "niah", "essay", "words", "uuids"},
    {"niah_multikey_1", "niah", "essay", "words", "numbers", 4},
    {"niah_multikey_2", "niah", "needle", "words", "numbers"},
    {"niah_multikey_3", "niah", "needle", "uuids", "uuids"},
    {"niah_multivalue", "niah", "essay", "words", "numbers", 1, 4},
    {"niah_multiquery", "niah", "essay", "words", "numbers", 4, 1, 4},
    {"vt", "vt"},
    {"cwe", "cwe"},
    {"fwe", "fwe"},
    {"qa_1", "qa"},
    {"qa_2", "qa"},
});

constexpr std::int32_t kRulerLength = 4096;

const RulerTask& task_named(std::string_view name) {
  return *std::find_if(kTasks.begin(), kTasks.end(), [&](const RulerTask& task) { return task.name == name; });
}

// Returns the last position of any of the texts; npos if there is none.
std::size_t last_of(std::string_view text, const std::vector<std::string_view>& marks) {
  std::size_t last = std::string_view::npos;
  for (const std::string_view mark : marks) {
    const std::size_t at = text.rfind(mark);
    if (at != std::string_view::npos && (last == std::string_view::npos || at > last)) last = at;
  }
  return last;
}

// Returns the sample of an official line: input, question and answer prefix. Older files have the prefix at the end of
// the input.
Sample sample_of_line(const RulerTask& task, const Record& record) {
  const bool needle = task.form == "niah";
  std::string input = record.text("input");
  std::string prefix;
  if (record.has("answer_prefix")) {
    prefix = record.text("answer_prefix");
  } else {
    const std::size_t at = input.rfind(needle ? " The special magic" : " Answer:");
    if (at == std::string::npos) {
      throw BadRecord("\"input\" has no answer prefix, and the field \"answer_prefix\" is missing");
    }
    prefix = input.substr(at);
    input.resize(at);
  }
  const std::size_t at = needle ? last_of(input, {"What is the special magic", "What are all the special magic"})
                                : last_of(input, {task.form == "qa" ? "Answer the question based on" : "Question: "});
  if (at == std::string::npos) throw BadRecord("\"input\" has no question of " + std::string(task.name));
  Sample sample = sample_of_row(ruler_row(task.form), {});
  sample.context = input.substr(0, at);
  sample.turns[0].question = input.substr(at);
  sample.turns[0].answer_prefix = prefix;
  sample.turns[0].references = record.texts("outputs");
  if (sample.turns[0].references.empty()) throw BadRecord("\"outputs\" is empty");
  sample.prefix_behind_header = true;
  return sample;
}

// Returns the lengths that name folders in the data folder, ascending.
std::vector<std::int32_t> length_folders(const fs::path& data) {
  std::vector<std::int32_t> lengths;
  if (!fs::is_directory(data)) return lengths;
  for (const fs::directory_entry& entry : fs::directory_iterator(data)) {
    const std::string name = entry.path().filename().string();
    std::int32_t length = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), length);
    if (error == std::errc() && end == name.data() + name.size() && entry.is_directory()) lengths.push_back(length);
  }
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

class Ruler : public Benchmark {
 public:
  std::string_view name() const override { return "ruler"; }
  std::string_view summary() const override {
    return "needles, variables, words and questions at any length: 13 tasks";
  }
  std::vector<std::string_view> inputs() const override { return {"data", "lengths", "haystack", "words"}; }
  std::vector<std::string> tasks() const override {
    std::vector<std::string> names;
    for (const RulerTask& task : kTasks) names.emplace_back(task.name);
    return names;
  }

  std::vector<Sample> samples(const SampleOptions& options) const override {
    const std::vector<std::string> selected = selected_tasks(options, tasks(), name());
    if (!options.data.empty() && !fs::exists(options.data)) {
      throw Error(ErrorCode::kNotFound, "there is no '" + options.data + "': check --data");
    }
    std::vector<Sample> samples = read_files(selected, options);
    if (!samples.empty()) return samples;
    const bool has_sources =
        !find_qa_source(options.data, "qa_1").empty() || !find_qa_source(options.data, "qa_2").empty();
    if (!options.data.empty() && !has_sources) {
      throw Error(ErrorCode::kNotFound, "'" + options.data +
                                            "' holds no file of RULER, such as 4096/vt.jsonl, nor of " +
                                            "its questions (dev-v2.0.json): without --data the tasks are generated");
    }
    return generate(selected, options);
  }

 private:
  static std::vector<Sample> read_files(const std::vector<std::string>& selected, const SampleOptions& options) {
    std::vector<Sample> samples;
    if (options.data.empty()) return samples;
    std::vector<std::int32_t> lengths = options.lengths.empty() ? length_folders(options.data) : options.lengths;
    if (lengths.empty() || length_folders(options.data).empty()) lengths = {0};
    std::vector<std::string> missing;
    for (const std::string& task : selected) {
      for (const std::int32_t length : lengths) {
        const fs::path path = find_file(task, length, selected.size() == 1, options);
        if (path.empty()) {
          missing.push_back(task + ".jsonl" + (length > 0 ? " of " + std::to_string(length) + " tokens" : ""));
        } else {
          if (length == 0) check_lengths(options);
          read(task_named(task), path, length, options, samples);
        }
      }
    }
    if (samples.empty()) return samples;
    for (const std::string& file : missing) {
      const std::string message = "there is no " + file + " in '" + options.data + "'";
      if (!options.tasks.empty()) throw Error(ErrorCode::kNotFound, message + " (made by NVIDIA/RULER's scripts)");
      if (options.on_skipped) options.on_skipped(message);
    }
    return samples;
  }

  // Throws Error(kInvalidArgument) for lengths to choose among files that are in no folder of a length, unless the data
  // are in a folder that is named after the only one.
  static void check_lengths(const SampleOptions& options) {
    if (options.lengths.empty()) return;
    for (const fs::path& part : fs::absolute(options.data)) {
      if (options.lengths.size() == 1 && part == std::to_string(options.lengths[0])) return;
    }
    throw Error(ErrorCode::kInvalidArgument, "--lengths has no effect on '" + options.data +
                                                 "', whose files have the length that they were made with: leave it " +
                                                 "out, or name the folder that holds folders such as 4096");
  }

  static fs::path find_file(const std::string& task, std::int32_t length, bool only, const SampleOptions& options) {
    const fs::path data = options.data;
    if (fs::is_regular_file(data)) return only || data.stem() == task ? data : fs::path();
    const fs::path folder = length > 0 ? data / std::to_string(length) : data;
    for (const fs::path& path : {folder / (task + ".jsonl"), folder / task / "validation.jsonl",
                                 folder / "data" / task / "validation.jsonl"}) {
      if (fs::is_regular_file(path)) return path;
    }
    return {};
  }

  static void read(const RulerTask& task, const fs::path& path, std::int32_t length, const SampleOptions& options,
                   std::vector<Sample>& samples) {
    const std::size_t first = samples.size();
    read_jsonl(path, options, [&](const Record& record) {
      Sample sample = sample_of_line(task, record);
      sample.task = task.name;
      const std::string index = record.id("index");
      const double tokens =
          record.has("length") && record.at("length").is_number() ? record.at("length").get<double>() : 0;
      sample.id = length > 0 ? std::to_string(length) + "-" + index : index;
      sample.coordinates["length"] = length > 0 ? length : tokens;
      samples.push_back(std::move(sample));
      return options.limit == 0 || samples.size() < first + static_cast<std::size_t>(options.limit);
    });
    make_ids_unique(samples, first);
  }

  static std::vector<Sample> generate(const std::vector<std::string>& selected, const SampleOptions& options) {
    const RulerWords words = read_ruler_words(options);
    std::vector<Sample> samples;
    for (const std::string& name : selected) {
      const RulerTask& task = task_named(name);
      const fs::path source = task.form == "qa" ? find_qa_source(options.data, name) : fs::path();
      if (task.form == "qa" && source.empty()) {
        const std::string message =
            name + " needs " +
            (name == "qa_1" ? "dev-v2.0.json (SQuAD 2.0's dev set)"
                            : "hotpot_dev_distractor_v1.json (HotpotQA's dev set, distractor setting)") +
            " in the folder that --data names";
        if (!options.tasks.empty()) throw Error(ErrorCode::kNotFound, message);
        if (options.on_skipped) options.on_skipped(message);
        continue;
      }
      for (const std::int32_t length : lengths_of(options, {kRulerLength})) {
        const RulerGeneratorPtr generator = make_generator(task, words, source, options, length);
        std::vector<Sample> made = generate_ruler(task, *generator, options, length);
        std::move(made.begin(), made.end(), std::back_inserter(samples));
      }
    }
    return samples;
  }

  static RulerGeneratorPtr make_generator(const RulerTask& task, const RulerWords& words, const fs::path& source,
                                          const SampleOptions& options, std::int32_t length) {
    if (task.form == "niah") return make_niah_generator(task, words, length);
    if (task.form == "vt") return make_vt_generator(options, length);
    if (task.form == "cwe") return make_cwe_generator(words, length);
    if (task.form == "fwe") return make_fwe_generator(length, options.reserved_tokens);
    return make_qa_generator(source, task.name);
  }
};

}  // namespace

const Benchmark& ruler() {
  static const Ruler benchmark;
  return benchmark;
}

}  // namespace winnow::eval
