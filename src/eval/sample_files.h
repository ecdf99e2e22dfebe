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

// The reason why one line cannot be used; never leaves this folder.
class BadRecord : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The JSON object of a line. Functions that read a field throw BadRecord, naming the field.
class Record {
 public:
  Record(nlohmann::json value, int line) : value_(std::move(value)), line_(line) {}
  int line() const { return line_; }  // from 1
  bool has(const char* field) const { return value_.contains(field) && !value_.at(field).is_null(); }
  const nlohmann::json& at(const char* field) const;
  std::string text(const char* field) const;
  // Returns a list of strings or numbers, or a single one as a list of one; numbers are returned as JSON text.
  std::vector<std::string> texts(const char* field) const;
  // Returns the text or number by which a field names the record (the first of a list), or the number of the line if
  // there is no such field.
  std::string id(const char* field) const;

 private:
  nlohmann::json value_;
  int line_;
};

std::vector<std::string> texts_of(const nlohmann::json& value, const char* field);

// Calls take(record) for every line that is not blank, until it returns false. A line that is not a JSON object, or for
// which take throws BadRecord, is skipped if options.skip_bad is set; else it throws Error(kBadFile) with file and
// line.
void read_jsonl(const std::filesystem::path& path, const SampleOptions& options,
                const std::function<bool(const Record&)>& take);

struct TaskFile {
  std::string task;
  std::filesystem::path path;
};

// The source of a benchmark's files.
struct FileSource {
  std::string_view table;   // table of tasks.json
  std::string_view suffix;  // suffix of the files' names, after the task's
  std::string_view from;    // place to get them from
};

// Calls read(row, file) for the files TASK.jsonl of the tasks, in the folder options.data or its folder data/, or for
// options.data itself if it is a file of one of them. Throws Error(kNotFound) if a named task has no file; if no task
// is named, one file is enough, and missing ones are passed to options.on_skipped.
void read_task_files(const SampleOptions& options, const Benchmark& benchmark, const FileSource& source,
                     const std::function<void(const nlohmann::json& row, const TaskFile& file)>& read);

// Makes the ids of a task's samples unique, should a file repeat one.
void make_ids_unique(std::vector<Sample>& samples, std::size_t first);
// Returns a key of 64 bits that is the same for equal texts, and almost certainly different for others.
std::string text_key(std::string_view text);

// Reads a file of running text or of words, see running_text. Throws Error(kNotFound, kBadFile, kIo).
std::string read_text_file(const std::filesystem::path& path);

}  // namespace winnow::eval
