// Files of samples in the benchmarks' official formats: found by name, read line by line.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "eval/sample.h"

namespace winnow::eval {

// Why one line cannot be used; never leaves this folder.
class BadRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A line's object. The accessors throw BadRecord, naming the field.
class Record {
 public:
  Record(nlohmann::json value, int line) : value_(std::move(value)), line_(line) {}
  int line() const { return line_; }  // from 1
  bool has(const char* field) const { return value_.contains(field) && !value_.at(field).is_null(); }
  const nlohmann::json& at(const char* field) const;
  std::string text(const char* field) const;
  // A string or number as a list of one; numbers as they are written.
  std::vector<std::string> texts(const char* field) const;

 private:
  nlohmann::json value_;
  int line_;
};

std::vector<std::string> texts_of(const nlohmann::json& value, const char* field);

// Calls take(record) for every line that is not blank, until it returns false. A line that is not a JSON object, and
// one for which take throws BadRecord: Error(kBadFile) with file and line, or with options.skip_bad on to the next.
void read_jsonl(const std::filesystem::path& path, const SampleOptions& options,
                const std::function<bool(const Record&)>& take);

struct TaskFile {
  std::string task;
  std::filesystem::path path;
};

// Where a benchmark's files come from.
struct FileSource {
  std::string_view table;   // of tasks.json
  std::string_view suffix;  // of the files' names, behind the task's
  std::string_view from;    // who has them
};

// Calls read(row, file) for the files TASK.jsonl of the tasks, in the folder options.data or its folder data/, or for
// options.data itself if it is a file of one of them. Every named task must be there, of all tasks at least one; others
// are reported. Throws Error(kNotFound).
void read_task_files(const SampleOptions& options, const Benchmark& benchmark, const FileSource& source,
                     const std::function<void(const nlohmann::json& row, const TaskFile& file)>& read);

// Makes the ids of a task's samples unique, should a file repeat one.
void make_ids_unique(std::vector<Sample>& samples, std::size_t first);
// The same for the same text, different for different ones as far as 64 bits go.
std::string text_key(std::string_view text);

// A file of running text or of words, see running_text. Throws Error(kNotFound, kBadFile, kIo).
std::string read_text_file(const std::filesystem::path& path);

}  // namespace winnow::eval
