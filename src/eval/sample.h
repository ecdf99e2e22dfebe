// One prompt of a benchmark, ready to be run: what every benchmark's files and generators become, and all that the
// runner knows of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/model.h"

namespace winnow::eval {

// A question with what its answer is judged by. Most samples have one; SCBench's have several on one context.
struct Turn {
  std::string question;       // the template from the question on, up to the answer prefix
  std::string answer_prefix;  // the template's end, which the model continues; may be empty
  std::string follow_up;      // SCBench's multi-turn mode: what is appended for this turn (turns after the first)
  std::vector<std::string> references;  // any of them is right (retrieval of several: all are asked for)
  std::vector<std::string> classes;     // all classes of a classification
  std::string metric;                   // a name of metrics.h; empty: nothing is generated (perplexity, fidelity)
  std::string keyword;  // reported beside the score: whether the answer contains it (niah); may be empty
  int max_new = 0;      // most tokens of the answer; of perplexity and fidelity, those of the continuation
};

// All texts are the templates of the benchmark's own code, filled; see docs/benchmarks.md.
struct Sample {
  std::string id;       // unique within the task, stable from run to run
  std::string task;     // "narrativeqa", "niah_single_1", ...
  std::string group;    // tables give its mean beside the task's (LongBench-E: "0-4k", "4-8k", "8k+"); may be empty
  std::string cluster;  // samples that are not independent (the same book) share it; empty: the sample alone
  std::string context;  // the template up to the question, filled
  std::vector<Turn> turns;
  // Coordinates for tables and plots: "length" (tokens or words), "depth" (percent), ...
  std::map<std::string, double> coordinates;
  bool chat_template = true;          // false: never wrapped in a chat template (few-shot and code tasks)
  bool prefix_behind_header = false;  // question-aware with a chat template: the answer prefix follows the
                                      // assistant's header instead of staying in the user's message
  bool stop_at_newline = false;       // samsum, niah: also ends at a newline token, after at least one token
  bool first_line_only = false;       // before scoring: prediction.lstrip('\n').split('\n')[0]
};

// What the samples of a benchmark are made from.
struct SampleOptions {
  std::vector<std::string> tasks;     // empty: all of the benchmark
  std::string data;                   // folder or file in the official format; empty: generated, or what ships
  std::vector<std::int32_t> lengths;  // generated benchmarks: tokens
  std::vector<double> depths;         // percent, niah and needlebench
  std::string haystack;               // text file, or a folder of them (*.txt); empty: the text that ships
  std::string words;                  // folder of RULER's word lists; empty: the lists that ship
  int limit = 0;                      // most samples per task (and length), 0: all there are
  std::uint64_t seed = 0;
  bool skip_bad = false;       // go on after a malformed line
  bool multi_request = false;  // SCBench: every question starts from the context alone
  bool chat_prompts = false;   // InfiniteBench: its prompts for chat models
  // Tokens that a chat template adds to a prompt: generated prompts leave room for them.
  std::int32_t reserved_tokens = 0;
  // The model's own tokenizer, for generated lengths; use_tokenizer() sets both. Files in the official formats need
  // neither. The token texts are bytes that, joined, are the text again.
  std::function<std::int32_t(std::string_view)> count_tokens;
  std::function<std::vector<std::string>(std::string_view)> split_tokens;
  std::function<void(const std::string&)> on_skipped;  // a line that was left out, and why
};

void use_tokenizer(SampleOptions& options, std::shared_ptr<const Model> model);

// A benchmark: where its samples come from and how an answer is judged. Stateless, one instance per process.
class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;        // one line
  virtual std::vector<std::string> tasks() const = 0;  // in the order of its tables
  // Which of the optional inputs it reads: "data", "lengths", "depths", "haystack", "words". Another has no effect on
  // it.
  virtual std::vector<std::string_view> inputs() const = 0;
  // Throws Error: kNotFound for an unknown task (with the nearest) or a missing file (with where to get it by name),
  // kBadFile naming file and line.
  virtual std::vector<Sample> samples(const SampleOptions& options) const = 0;
};

const std::vector<const Benchmark*>& benchmarks();

// A benchmark's questions read by another measure: "fidelity:longbench" is how far the answers to LongBench's questions
// are from the full cache's.
inline constexpr std::string_view kFidelityOf = "fidelity:";
// The benchmark whose samples they are: "longbench" of both names.
std::string_view samples_of(std::string_view name);

// Where a name's samples come from. Throws Error(kNotFound) with the nearest name.
const Benchmark& find_benchmark(std::string_view name);

// Where jieba's dictionary is: its package's folder (dict.txt, finalseg/prob_emit.py). Until it is set, Chinese words
// are single characters; "" goes back to that. Not thread-safe: before the first answer is scored. Throws
// Error(kNotFound, kBadFile).
void set_jieba(const std::string& folder);
// Whether the metric splits Chinese text, so that without jieba its scores are not comparable with published ones.
bool metric_wants_jieba(std::string_view metric);

// The score in [0, 1] of an answer to a turn of a sample, by the turn's metric.
double score_answer(const Sample& sample, const Turn& turn, std::string_view answer);

}  // namespace winnow::eval
