// Benchmarks of eviction methods, every method at every budget: `winnow eval` as a function.
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

// The samples, methods and budgets of an evaluation, and the memory that it may take.
struct EvaluationOptions {
  // Names of evaluation_benchmarks: "fidelity", "niah", "ruler", ... "fidelity:ruler" takes ruler's questions, lets the
  // full cache answer them, and measures how far each method's predictions of those answers are from the full cache's.
  std::vector<std::string> benchmarks;
  // Text forms of methods and budgets. Every method that evicts runs at every budget, `full` once. Without methods:
  // full and auto. It is an error to leave both empty: there would be nothing to compare.
  std::vector<std::string> methods, budgets;
  // "agnostic": the cache is cut before the question is known; "aware": with the question in sight; "both".
  std::string question = "agnostic";
  std::vector<std::string> tasks;     // tasks of the benchmarks to run; empty: all
  std::vector<std::int32_t> lengths;  // lengths of generated samples, in tokens
  std::vector<double> depths;         // places of needles in generated samples, in percent of the text
  int limit = 0;                      // most samples of a task; 0: all there are
  std::uint64_t seed = 0;             // seed of generated samples
  // Files in a benchmark's own format, by the benchmark's name; "": for all benchmarks that are not named.
  std::map<std::string, std::string> data;
  std::string haystack, words;            // a text file, and a folder of RULER's word lists; empty: those that ship
  bool skip_bad = false;                  // goes on after a malformed line of the data
  std::optional<bool> use_chat_template;  // not set: if the model has one
  std::int32_t n_ctx = 0;                 // context of the sessions in tokens; 0: the model's
  EntryType key_type = EntryType::kF16, value_type = EntryType::kF16;
  std::optional<int> batch;  // most sequences at a time; not set: 32; 1: every method runs alone and is timed
  std::optional<std::size_t>
      kv_memory;  // bytes of KV cache of all that runs together; not set: half of the free memory
  // Most tokens, read and generated, of samples that run together before their answers are written; not set: as many as
  // the machine reads in a minute.
  std::optional<std::int64_t> batch_tokens;
  bool retry_failed = false;  // runs samples again that failed before
  // The part of the samples to run, the Ith of N as "2/8". Several processes may run different parts into one folder at
  // the same time. A part that has no sample is done at once.
  std::string shard = "1/1";
};

// The progress of an evaluation.
struct EvaluationWork {
  std::int64_t answers_done = 0, answers_total = 0;  // answers in the folder, those of earlier calls included
  std::int64_t tokens_done = 0, tokens_total = 0;    // estimated tokens through all layers, of what runs together now
  double share = 0;                                  // fraction of this call's work that is done, in [0, 1]
};

// The functions that an evaluation calls as it goes on.
struct EvaluationCallbacks {
  std::function<bool()> should_stop;                                       // asked between steps; true stops
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  // called with numbers of answers
  std::function<void(const EvaluationWork&)> on_work;                      // called several times a second
  std::function<void(const std::string& sentence)> on_note;  // called before it begins with what the user should know
};

// Runs an evaluation: writes an answer to the folder for every sample, method and budget that has none there yet, and
// returns true once all are there, false where should_stop ended it; the same call then goes on from there.
// docs/evaluation.md says what a folder contains and how answers are judged. The weights' format of `engine`
// (PrefillWeights) is recorded in the folder; kFloat, the tool's default, keeps the rounding of activations out of the
// comparison. Throws Error for options that contradict each other or the model, for samples that cannot be read or made
// and for a folder of another run. An error in one sample is recorded as that sample's result.
bool evaluate(const std::shared_ptr<const Model>& model, const EngineOptions& engine, const EvaluationOptions& options,
              const std::string& folder, const EvaluationCallbacks& callbacks = {});

// Returns the mean results of such folders with their 95 % confidence intervals as CSV, a line for each benchmark,
// task, method and budget: the results.csv of `winnow report`. Throws Error(kNotFound) and Error(kBadFile) for a folder
// that is missing or damaged, kInvalidArgument for folders of different models.
std::string evaluation_csv(const std::vector<std::string>& folders);

// A benchmark and the names of its tasks.
struct BenchmarkInfo {
  std::string name, summary;
  std::vector<std::string> tasks;
};
// Returns all benchmarks, in the order in which to show them.
std::vector<BenchmarkInfo> evaluation_benchmarks();

}  // namespace winnow
