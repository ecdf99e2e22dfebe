#include "eval/sample_files.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "base/fnv1a.h"
#include "base/input_file.h"
#include "base/json_file.h"
#include "base/running_text.h"
#include "base/utf8.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace fs = std::filesystem;

const nlohmann::json& Record::at(const char* field) const {
  if (!value_.contains(field)) throw BadRecord(std::string("the field \"") + field + "\" is missing");
  return value_.at(field);
}

std::string Record::text(const char* field) const {
  const nlohmann::json& value = at(field);
  if (!value.is_string()) throw BadRecord(std::string("\"") + field + "\" is not a string");
  return value.get<std::string>();
}

std::vector<std::string> Record::texts(const char* field) const { return texts_of(at(field), field); }

std::string Record::id(const char* field) const {
  if (!has(field)) return std::to_string(line_);
  const std::vector<std::string> ids = texts(field);
  if (ids.empty()) throw BadRecord(std::string("\"") + field + "\" is an empty list");
  return ids.front();
}

std::vector<std::string> texts_of(const nlohmann::json& value, const char* field) {
  std::vector<std::string> texts;
  const auto add = [&](const nlohmann::json& one) {
    if (!one.is_string() && !one.is_number()) {
      throw BadRecord(std::string("\"") + field + "\" is not a list of strings or numbers");
    }
    texts.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  };
  if (value.is_array()) {
    for (const nlohmann::json& one : value) add(one);
  } else {
    add(value);
  }
  return texts;
}

void read_jsonl(const fs::path& path, const SampleOptions& options, const std::function<bool(const Record&)>& take) {
  InputLines lines(path.string(), input::kSampleLine);
  int number = 0;
  while (const std::optional<std::string> line = lines.next()) {
    ++number;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string why;
    try {
      if (const auto bad = find_invalid_utf8(*line)) {
        throw BadRecord("it is not UTF-8 at byte " + std::to_string(*bad) + " of the line");
      }
      std::optional<nlohmann::json> value = parse_flat_json(*line);
      if (!value) throw BadRecord("it is not JSON (or nested too deep)");
      if (!value->is_object()) throw BadRecord("it is not a JSON object");
      if (!take(Record(*std::move(value), number))) return;
      continue;
    } catch (const BadRecord& bad) {
      why = bad.what();
    } catch (const nlohmann::json::exception&) {
      why = "it is not JSON";
    }
    const std::string message = "'" + path.string() + "', line " + std::to_string(number) + ": " + why;
    if (!options.skip_bad) throw Error(ErrorCode::kBadFile, message + "; --skip-bad skips such lines");
    if (options.on_skipped) options.on_skipped(message);
  }
}

namespace {

std::vector<TaskFile> task_files(const SampleOptions& options, const Benchmark& benchmark, const FileSource& source) {
  const std::vector<std::string> tasks = selected_tasks(options, benchmark.tasks(), benchmark.name());
  const std::string name(benchmark.name());
  const std::string from = " (from " + std::string(source.from) + ")";
  if (options.data.empty()) {
    throw Error(ErrorCode::kNotFound, name + " needs its files" + from + ": name their folder with --data");
  }
  const fs::path data = options.data;
  if (fs::is_regular_file(data)) {
    for (const std::string& task : tasks) {
      if (tasks.size() == 1 || data.stem() == task + std::string(source.suffix)) return {{task, data}};
    }
    throw Error(ErrorCode::kNotFound, "'" + data.string() + "' is not named after a task: name its task with --tasks");
  }
  if (!fs::is_directory(data)) throw Error(ErrorCode::kNotFound, "there is no '" + data.string() + "': check --data");
  std::vector<TaskFile> files;
  for (const std::string& task : tasks) {
    const std::string file = task + std::string(source.suffix) + ".jsonl";
    const fs::path path = fs::exists(data / file) ? data / file : data / "data" / file;
    if (fs::is_regular_file(path)) {
      files.push_back({task, path});
      continue;
    }
    const std::string message = "there is no " + file + from + " in '" + data.string() + "'";
    if (!options.tasks.empty()) throw Error(ErrorCode::kNotFound, message);
    if (options.on_skipped) options.on_skipped(message);
  }
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound, "'" + data.string() + "' holds no file of " + name + ", such as " +
                                          tasks.front() + std::string(source.suffix) + ".jsonl" + from);
  }
  return files;
}

}  // namespace

void read_task_files(const SampleOptions& options, const Benchmark& benchmark, const FileSource& source,
                     const std::function<void(const nlohmann::json& row, const TaskFile& file)>& read) {
  for (const TaskFile& file : task_files(options, benchmark, source)) {
    for (const nlohmann::json& row : task_table(source.table)) {
      if (row.at("task") == file.task) read(row, file);
    }
  }
}

void make_ids_unique(std::vector<Sample>& samples, std::size_t first) {
  std::set<std::string> seen;
  for (std::size_t i = first; i < samples.size(); ++i) {
    const std::string id = samples[i].id;
    for (int copy = 2; !seen.insert(samples[i].id).second; ++copy) samples[i].id = id + "#" + std::to_string(copy);
  }
}

std::string text_key(std::string_view text) { return hex_text(fnv1a(text)); }

std::string read_text_file(const fs::path& path) {
  if (!fs::is_regular_file(path)) {
    throw Error(ErrorCode::kNotFound, "there is no text file '" + path.string() + "': check the path");
  }
  return running_text(read_input(path.string(), input::kText), path.string());
}

}  // namespace winnow::eval
