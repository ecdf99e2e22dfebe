#include "eval/run/result_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/atomic_file.h"
#include "base/input_file.h"
#include "winnow/error.h"
#include "winnow/version.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kRunFile = "run.json";

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw Error(ErrorCode::kIo, what + " '" + path + "': " + std::strerror(errno));
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// Returns the .jsonl files of the folder whose names start with `beginning`, sorted.
std::vector<std::string> files_of(const std::string& folder, const std::string& beginning) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(beginning) && name.ends_with(".jsonl")) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Calls `take` for every whole line. A last line without its newline is still being written, or was when the process
// died.
void for_each_line(const std::string& path, const std::function<void(const Json&)>& take) {
  InputLines lines(path, input::kRunLine);
  for (int number = 1;; ++number) {
    const std::optional<std::string> line = lines.next();
    if (!line || !lines.had_newline()) return;
    try {
      take(Json::parse(*line));
    } catch (const Json::exception& error) {
      throw Error(ErrorCode::kBadFile, "line " + std::to_string(number) + " of '" + path +
                                           "' is damaged: delete that line to run its sample again");
    }
  }
}

// Returns the number of bytes up to the end of the last whole line.
off_t whole_lines(int descriptor, const std::string& path) {
  char block[4096];
  off_t end = lseek(descriptor, 0, SEEK_END);
  while (end > 0) {
    const off_t begin = std::max<off_t>(end - static_cast<off_t>(sizeof block), 0);
    const ssize_t count = pread(descriptor, block, static_cast<std::size_t>(end - begin), begin);
    if (count != end - begin) fail("cannot read", path);
    const std::size_t last = std::string_view(block, static_cast<std::size_t>(count)).rfind('\n');
    if (last != std::string_view::npos) return begin + static_cast<off_t>(last) + 1;
    end = begin;
  }
  return 0;
}

// Returns the first difference, "budgets is ["20%"] there and ["10%"] here", or "" if there is none.
std::string difference(const Json& there, const Json& here) {
  // Settings that a user chose say more than those that follow from them, so they come first.
  for (const char* name : {"model", "benchmarks", "tasks", "methods", "budgets", "question", "lengths", "depths",
                           "limit", "key_type", "value_type"}) {
    if (there.contains(name) && here.contains(name) && there[name] != here[name]) {
      return std::string(name) + " is " + there[name].dump() + " there and " + here[name].dump() + " here";
    }
  }
  for (const auto& [name, value] : here.items()) {
    if (!there.contains(name) || there[name] != value) {
      return name + " is " + (there.contains(name) ? there[name].dump() : "not set") + " there and " + value.dump() +
             " here";
    }
  }
  for (const auto& [name, value] : there.items()) {
    if (!here.contains(name)) return name + " is " + value.dump() + " there and not set here";
  }
  return "";
}

}  // namespace

ResultStore::ResultStore(const std::string& folder, const Json& configuration, const Json& defaults, const Shard& shard,
                         Start start)
    : folder_(folder), shard_name_(std::to_string(shard.index + 1) + "-of-" + std::to_string(shard.count) + ".jsonl") {
  answers_path_ = (fs::path(folder_) / ("answers-" + shard_name_)).string();
  load_or_write_configuration(configuration, defaults, start);
  open_answers();
  read_answers();
}

bool ResultStore::is_there(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / kRunFile, ignored);
}

ResultStore::~ResultStore() {
  if (descriptor_ >= 0) close(descriptor_);
}

void ResultStore::load_or_write_configuration(const Json& configuration, const Json& defaults, Start start) {
  std::error_code error;
  const std::string path = (fs::path(folder_) / kRunFile).string();
  if (!fs::exists(path, error)) {
    if (start == Start::kResume) {
      throw Error(ErrorCode::kNotFound, "'" + folder_ + "' has no run to resume: leave out --resume to begin one");
    }
    fs::create_directories(folder_, error);
    if (error) throw Error(ErrorCode::kIo, "cannot make the folder '" + folder_ + "': " + error.message());
    // Another shard that began at the same moment may have written its files since; run.json exists by then.
    const bool has_others =
        std::any_of(fs::directory_iterator(folder_), fs::directory_iterator(),
                    [](const auto& entry) { return !entry.path().filename().string().starts_with(kRunFile); });
    if (has_others && !fs::exists(path, error)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + folder_ + "' has files, but not of an evaluation: name a new folder");
    }
    Json run = defaults;
    run.update(configuration);
    const Json content{{"winnow", kVersion}, {"run", run}};
    AtomicFile file(path);
    file.write(content.dump(2) + "\n");
    file.commit_new();  // if another shard was first, its configuration is checked below
  }
  Json stored;
  try {
    stored = Json::parse(read_input(path, input::kRun)).at("run");
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kBadFile, "'" + path + "' is damaged: name a new folder");
  }
  Json here = configuration;
  for (const char* name : {kModelMetadata, kChineseWords, kClassesDigest}) {
    if (!stored.contains(name)) here.erase(name);
  }
  for (const auto& [name, value] : defaults.items()) {
    if (!here.contains(name) && stored.contains(name)) here[name] = stored[name];
  }
  if (const std::string what = difference(stored, here); !what.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "'" + folder_ + "' holds another run (" + what +
                                                 "): name a new folder, or give the flags of that run to resume it");
  }
  configuration_ = std::move(stored);
}

void ResultStore::open_answers() {
  descriptor_ = open(answers_path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot write", answers_path_);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "another process is writing '" + answers_path_ + "': wait for it, or run another shard");
  }
  // Removes the part of a line that a killed process left.
  const off_t whole = whole_lines(descriptor_, answers_path_);
  if (whole < lseek(descriptor_, 0, SEEK_END) && ftruncate(descriptor_, whole) != 0) {
    fail("cannot shorten", answers_path_);
  }
}

void ResultStore::read_answers() {
  const EntryTypes types = types_of(configuration_);
  for (const std::string& path : files_of(folder_, "answers-")) {
    for_each_line(path, [&](const Json& json) {
      const Answer answer = answer_from_json(json, types);
      const bool is_new = done_.insert(answer.key).second;
      if (answer.error.empty()) {
        failed_.erase(answer.key);
      } else if (is_new) {
        // Another shard's file may come first, with the answer of a later attempt.
        failed_.insert(answer.key);
      }
    });
  }
}

void ResultStore::forget_failures() {
  for (const AnswerKey& key : failed_) done_.erase(key);
  failed_.clear();
}

void ResultStore::write_samples(std::span<const WorkItem* const> items) const {
  std::string content;
  for (const WorkItem* item : items) content += line_of(sample_to_json(*item));
  write_file((fs::path(folder_) / ("samples-" + shard_name_)).string(), content);
}

void ResultStore::append(const Answer& answer) {
  errno = write_all(descriptor_, line_of(to_json(answer)));
  if (errno != 0 || fsync(descriptor_) != 0) fail("cannot write", answers_path_);
  done_.insert(answer.key);
}

EntryTypes types_of(const Json& configuration) {
  const EntryTypes f16;
  return {configuration.value("key_type", f16.key), configuration.value("value_type", f16.value)};
}

void add_answer(std::map<AnswerKey, Answer>& answers, Answer answer) {
  const auto [place, is_new] = answers.try_emplace(answer.key, answer);
  if (!is_new && answer.error.empty()) place->second = std::move(answer);
}

StoredRun read_run(const std::string& folder) {
  const std::string path = (fs::path(folder) / kRunFile).string();
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw Error(ErrorCode::kNotFound, "'" + folder + "' holds no evaluation (it has no " + kRunFile +
                                          "): name the --out folder of `winnow eval`");
  }
  StoredRun run;
  EntryTypes types;
  try {
    run.configuration = Json::parse(read_input(path, input::kRun)).at("run");
    types = types_of(run.configuration);
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kBadFile, "'" + path + "' is damaged");
  }
  for (const std::string& file : files_of(folder, "answers-")) {
    for_each_line(file, [&](const Json& json) { add_answer(run.answers, answer_from_json(json, types)); });
  }
  for (const std::string& file : files_of(folder, "samples-")) {
    for_each_line(file, [&](const Json& json) { run.samples.push_back(json); });
  }
  return run;
}

}  // namespace winnow::eval
