// Input files of an evaluation or a calibration: samples in each benchmark's format, texts, questions, the state of a
// calibration, the folder of a run. The first byte chooses which.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "eval/run/result_store.h"
#include "eval/sample.h"
#include "fuzz/memory_file.h"
#include "study/calibrate/calibration_state.h"
#include "study/calibrate/questions.h"
#include "winnow/error.h"

namespace {

namespace fs = std::filesystem;
using namespace winnow;  // NOLINT(google-build-using-namespace)

// Returns the words of a text as its tokens.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at + 1), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

eval::SampleOptions options() {
  eval::SampleOptions options;
  options.split_tokens = words_of;
  options.count_tokens = [](std::string_view text) { return static_cast<std::int32_t>(words_of(text).size()); };
  options.skip_bad = true;
  return options;
}

using Task = std::pair<const eval::Benchmark*, std::string>;

// Returns all tasks of the benchmarks whose samples come from files.
std::vector<Task> file_tasks() {
  std::vector<Task> tasks;
  for (const char* name : {"longbench", "infinitebench", "scbench"}) {
    const eval::Benchmark& benchmark = eval::find_benchmark(name);
    for (const std::string& task : benchmark.tasks()) tasks.emplace_back(&benchmark, task);
  }
  return tasks;
}

void read_samples(const Task& task, const std::string& path) {
  eval::SampleOptions of = options();
  of.tasks = {task.second};
  of.data = path;
  constexpr std::size_t kMostBytes = 128;  // most bytes of an answer: metrics compare all of it with all of a reference
  for (const eval::Sample& sample : task.first->samples(of)) {
    const std::string answer = sample.context.substr(0, whole_characters(sample.context, kMostBytes));
    for (const eval::Turn& turn : sample.turns) {
      if (!turn.metric.empty()) eval::score_answer(sample, turn, answer);
    }
  }
}

void read_haystack(const std::string& path) {
  eval::SampleOptions of = options();
  of.haystack = path;
  of.lengths = {600};
  of.limit = 1;
  eval::find_benchmark("niah").samples(of);
}

// Reads a run from an input of run.json, samples and answers, which are separated by zero bytes.
void read_run(const std::string& bytes) {
  static const fs::path folder = [] {
    fs::path made = fs::temp_directory_path() / ("fuzz-run-" + std::to_string(getpid()));
    fs::create_directories(made);
    return made;
  }();
  std::size_t at = 0;
  for (const char* name : {"run.json", "samples-1-of-1.jsonl", "answers-1-of-1.jsonl"}) {
    const std::size_t end = std::min(bytes.find('\0', at), bytes.size());
    std::ofstream(folder / name, std::ios::binary) << bytes.substr(at, end - at);
    at = std::min(end + 1, bytes.size());
  }
  eval::read_run(folder.string());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Task> tasks = file_tasks();
  if (size == 0) return 0;
  const std::size_t which = data[0];
  const test::MemoryFile file(data + 1, size - 1);
  try {
    if (which < tasks.size()) {
      read_samples(tasks[which], file.path());
    } else if (which < 160) {
      read_haystack(file.path());
    } else if (which < 192) {
      read_questions(file.path());
    } else if (which < 224) {
      CalibrationState state{.model = "m", .scorer = "snapkv", .n_decode = 8, .seed = 1};
      state.take_up(file.path(), {1, 2}, 2, 3);
    } else {
      read_run(std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
    }
  } catch (const Error&) {
  }
  return 0;
}
