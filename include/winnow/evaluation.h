// Benchmarks with every method at every budget: what `winnow eval` runs, from a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "winnow/api.h"
#include "winnow/entry_type.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

struct EvaluationOptions {
  // "fidelity", "niah", "ruler", ...: see evaluation_benchmarks; "fidelity:ruler": how far the predictions over the
  // full cache's answers to its questions are from the full cache's.
  std::vector<std::string> benchmarks;
  // Text forms. Every method that evicts runs at every budget, `full` once. Both empty: nothing to compare, an error;
  // methods alone empty: full and auto.
  std::vector<std::string> methods, budgets;
  std::string question = "agnostic";        // cut before the question is known; "aware": with it in sight; "both"
  std::vector<std::string> tasks;           // of the benchmarks; empty: all
  std::vector<std::int32_t> lengths;        // tokens, of what is generated
  std::vector<double> depths;               // percent, where needles lie
  int limit = 0;                            // most samples of a task; 0: all there are
  std::uint64_t seed = 0;                   // of what is generated
  std::map<std::string, std::string> data;  // files in a benchmark's own format, by benchmark; "": of those not named
  std::string haystack, words;              // a text file, a folder of RULER's lists; empty: what ships
  bool skip_bad = false;                    // go on after a malformed line of the data
  std::optional<bool> use_chat_template;    // none: where the model has one
  std::int32_t n_ctx = 0;                   // 0: the model's
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
  std::optional<int> batch;              // most sequences at a time, 32; 1: every method alone, with times of its own
  std::optional<std::size_t> kv_memory;  // bytes of what runs together; none: half of what is free
  // Most tokens of samples that run together, read and written, before their answers are there; none: what the machine
  // reads in a minute.
  std::optional<std::int64_t> batch_tokens;
  bool retry_failed = false;  // run samples again that failed before
  // The Ith of N parts of the samples, "2/8": several processes may do different ones into one folder at the same time.
  // One behind the last sample has nothing to do.
  std::string shard = "1/1";
};

// How far an evaluation is.
struct EvaluationWork {
  std::int64_t answers_done = 0, answers_total = 0;  // in the folder, those that were there before included
  std::int64_t tokens_done = 0, tokens_total = 0;    // through all layers, of what runs together now; about
  double share = 0;                                  // of what was to do when it began, in [0, 1]
};

struct EvaluationCallbacks {
  std::function<bool()> should_stop;                                       // looked at between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  // answers
  std::function<void(const EvaluationWork&)> on_work;                      // several times a second
  std::function<void(const std::string& sentence)> on_note;  // what the user should know, before it begins
};

// Writes an answer to the folder for every sample, method and budget that has none there yet; what a folder has and how
// answers are judged stands in docs/evaluation.md. `engine`: its weights belong to what the folder holds; kFloat, the
// tool's default, keeps the rounding of activations out of what a cut costs. False where it was stopped: the same call
// goes on from there. Throws Error for options that contradict each other or the model, for samples that cannot be had
// and for a folder of another run; what goes wrong with one sample is written down.
bool evaluate(const std::shared_ptr<const Model>& model, const EngineOptions& engine, const EvaluationOptions& options,
              const std::string& folder, const EvaluationCallbacks& callbacks = {});

// The means in such folders with their 95 % intervals, a line for each benchmark, task, method and budget: the
// results.csv of `winnow report`. Throws Error(kNotFound, kBadFile), and kInvalidArgument for folders of different
// models.
std::string evaluation_csv(const std::vector<std::string>& folders);

struct BenchmarkInfo {
  std::string name, summary;
  std::vector<std::string> tasks;
};
std::vector<BenchmarkInfo> evaluation_benchmarks();

}  // namespace winnow
