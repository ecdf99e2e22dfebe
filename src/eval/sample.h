// A prompt of a benchmark, ready to be run. Every benchmark turns its files or its generator's output into samples, and
// the runner knows nothing else about it.
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

// A question with the references and the metric that judge its answer. Most samples have one turn; SCBench's have
// several on one context.
struct Turn {
  std::string question;       // the template from the question on, up to the answer prefix
  std::string answer_prefix;  // the template's end, which the model continues; may be empty
  std::string follow_up;      // SCBench's multi-turn mode: text appended for this turn (turns after the first)
  std::vector<std::string> references;  // right answers; any of them counts (retrieval of several: all are asked for)
  std::vector<std::string> classes;     // all classes of a classification
  std::string metric;                   // a name of metrics.h; empty: nothing is generated (perplexity, fidelity)
  std::string keyword;  // text that the report looks for in the answer, besides the score (niah); may be empty
  int max_new = 0;      // most tokens of the answer; for perplexity and fidelity, of the continuation
};

// All texts are the templates of the benchmark's own code, filled; see docs/benchmarks.md.
struct Sample {
  std::string id;       // unique within the task, stable from run to run
  std::string task;     // "narrativeqa", "niah_single_1", ...
  std::string group;    // tables give its mean besides the task's (LongBench-E: "0-4k", "4-8k", "8k+"); may be empty
  std::string cluster;  // shared by samples that are not independent (the same book); empty: independent of others
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

// The inputs and settings from which a benchmark makes its samples.
struct SampleOptions {
  std::vector<std::string> tasks;     // empty: all of the benchmark
  std::string data;                   // folder or file in the official format; empty: generated, or shipped data
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
  // Functions of the model's tokenizer, for lengths of generated samples; use_tokenizer() sets both. Files in the
  // official formats need neither. split_tokens returns byte strings that concatenate to the text.
  std::function<std::int32_t(std::string_view)> count_tokens;
  std::function<std::vector<std::string>(std::string_view)> split_tokens;
  std::function<void(const std::string&)> on_skipped;  // called with each line that was left out, and why
};

void use_tokenizer(SampleOptions& options, std::shared_ptr<const Model> model);

// A benchmark: a source of samples with the metrics that judge their answers. It is stateless, with one instance per
// process.
class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;        // one line
  virtual std::vector<std::string> tasks() const = 0;  // in the order of its tables
  // Returns the optional inputs that it reads, of "data", "lengths", "depths", "haystack" and "words". Other inputs
  // have no effect on it.
  virtual std::vector<std::string_view> inputs() const = 0;
  // Returns the samples. Throws Error(kNotFound) for an unknown task (with the nearest) or a missing file (with the
  // place to get it from), and kBadFile naming file and line.
  virtual std::vector<Sample> samples(const SampleOptions& options) const = 0;
};

const std::vector<const Benchmark*>& benchmarks();

// The prefix of a name that measures fidelity on a benchmark's questions: "fidelity:longbench" measures how far the
// predictions of answers to LongBench's questions are from the full cache's.
inline constexpr std::string_view kFidelityOf = "fidelity:";
// Returns the name of the benchmark that makes the samples: "longbench" for both names.
std::string_view samples_of(std::string_view name);

// Returns the benchmark that makes the samples of a name. Throws Error(kNotFound) with the nearest name.
const Benchmark& find_benchmark(std::string_view name);

// Sets the folder of jieba's package with its dictionary (dict.txt, finalseg/prob_emit.py). Until it is set, Chinese
// words are single characters; "" returns to that. Not thread-safe: call it before the first answer is scored. Throws
// Error(kNotFound, kBadFile).
void set_jieba(const std::string& folder);
// Returns what finds Chinese words: a digest of jieba's files, or kCharacters if none are set.
std::string chinese_words_source();
inline constexpr const char* kCharacters = "characters";
// Returns true if the metric splits Chinese text, so that without jieba its scores are not comparable with published
// ones.
bool metric_wants_jieba(std::string_view metric);

// Returns the score in [0, 1] of an answer to a turn of a sample, by the turn's metric.
double score_answer(const Sample& sample, const Turn& turn, std::string_view answer);

}  // namespace winnow::eval
