#include "eval/report/results.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "eval/run/result_store.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using Json = nlohmann::json;
using SampleKey = std::tuple<std::string, std::string, std::string, std::string>;  // benchmark, task, id, question

void add_new(std::vector<std::string>& names, const Json& more) {
  for (const Json& name : more) {
    if (std::find(names.begin(), names.end(), name.get<std::string>()) == names.end()) names.push_back(name);
  }
}

std::shared_ptr<const SampleInfo> sample_info(const Json& json) {
  auto info = std::make_shared<SampleInfo>();
  info->group = json.value("group", "");
  info->cluster = json.value("cluster", "");
  info->context = json.value("context", "");
  info->coordinates = json.value("coordinates", std::map<std::string, double>{});
  for (const Json& turn : json.at("turns")) {
    info->turns.push_back({turn.value("question", ""), turn.value("references", std::vector<std::string>{})});
  }
  return info;
}

// Throws Error(kUnsupported) for fidelity that earlier versions measured as the distance from the full cache in the
// run's own types, which hides the cost of quantisation.
void check_reference(const std::string& folder, const StoredRun& run) {
  const EntryTypes types = types_of(run.configuration);
  if (types == reference_types(types) || run.configuration.contains(kReferenceTypes)) return;
  for (const auto& [key, answer] : run.answers) {
    if (!compares(protocol_of(key.benchmark))) continue;
    throw Error(ErrorCode::kUnsupported, "'" + folder + "' holds " + key.benchmark + " with " + types.text() +
                                             " entries, measured against the full cache in " + types.text() +
                                             ", not in f16: run it again, into a new folder");
  }
}

// A folder that was read, and its configuration.
struct ReadFolder {
  std::string path;
  Json configuration;
};

// Returns true if both have the setting, with different values. Runs of earlier versions lack some.
bool differ(const ReadFolder& a, const ReadFolder& b, const char* setting) {
  return a.configuration.contains(setting) && b.configuration.contains(setting) &&
         a.configuration[setting] != b.configuration[setting];
}

// Returns a benchmark that both folders ran, or "" if there is none.
std::string shared_benchmark(const ReadFolder& a, const ReadFolder& b) {
  const Json of_a = a.configuration.value("benchmarks", Json::array());
  for (const Json& name : b.configuration.value("benchmarks", Json::array())) {
    if (std::find(of_a.begin(), of_a.end(), name) != of_a.end()) return name.get<std::string>();
  }
  return "";
}

// Throws Error(kInvalidArgument) for runs of different models, and for runs of one benchmark that differ in a setting
// that gives other prompts or scores to samples with the same ids.
void check_comparable(const ReadFolder& first, const ReadFolder& second) {
  if (differ(first, second, "model_fingerprint") || differ(first, second, kModelMetadata)) {
    throw Error(ErrorCode::kInvalidArgument, "'" + second.path + "' is a run of a different model from '" + first.path +
                                                 "': report one model at a time");
  }
  const std::string benchmark = shared_benchmark(first, second);
  if (benchmark.empty()) return;
  for (const auto& [setting, flag] : {std::pair{"context", "-c"},
                                      {"chat_template", "--chat-template"},
                                      {"seed", "--seed"},
                                      {kChineseWords, "--jieba"}}) {
    if (!differ(first, second, setting)) continue;
    throw Error(ErrorCode::kInvalidArgument, "'" + first.path + "' and '" + second.path + "' are runs of " + benchmark +
                                                 " that do not compare (" + setting + " is " +
                                                 first.configuration[setting].dump() + " in the first and " +
                                                 second.configuration[setting].dump() +
                                                 " in the second): report one at a time, or run one of them "
                                                 "again, into a new folder, with the " +
                                                 flag + " of the other");
  }
}

// Adds the methods of a run that store their entries in other types than its cache's.
void add_with_own_types(std::set<std::string>& methods, const StoredRun& run) {
  const EntryTypes of_cache = types_of(run.configuration);
  for (const auto& [key, answer] : run.answers) {
    if (answer.error.empty() && !key.budget.empty() && key.types != of_cache) methods.insert(key.method);
  }
}

// Removes the methods that store entries in several types at one budget, as happens if runs differ in the types of the
// cache.
void drop_ambiguous(std::set<std::string>& methods, const std::map<AnswerKey, Answer>& answers) {
  std::map<std::pair<std::string, std::string>, std::set<EntryTypes>> types;  // by method and budget
  for (const auto& [key, answer] : answers) {
    if (answer.error.empty()) types[{key.method, key.budget}].insert(key.types);
  }
  for (const auto& [condition, of_condition] : types) {
    if (of_condition.size() > 1) methods.erase(condition.first);
  }
}

// A sample of a folder, and what tells it apart from others of its name.
struct KnownSample {
  std::shared_ptr<const SampleInfo> info;
  std::string digest;  // empty: of an earlier version
  std::string folder;
};

// Returns true if the samples are the same, as far as their lines say.
bool are_same(const KnownSample& a, const KnownSample& b) {
  if (!a.digest.empty() && !b.digest.empty()) return a.digest == b.digest;
  return a.info->context == b.info->context && a.info->coordinates == b.info->coordinates &&
         a.info->turns == b.info->turns;
}

// Calls `read`. Throws Error(kBadFile) if the JSON of the file lacks what it reads.
template <typename Read>
void read_fields(const std::string& folder, const std::string& file, const Read& read) {
  try {
    read();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kBadFile, "'" + folder + "/" + file +
                                         "' is damaged (a field is missing, or of the wrong type): run it again, into "
                                         "a new folder");
  }
}

// The runs of several folders, joined one after the other.
class JoinedRuns {
 public:
  void add(const std::string& folder);
  // Returns what was added; to be called once, at the end.
  Results results();

 private:
  void add_configuration(const std::string& folder, const StoredRun& run);
  // Returns the number of answers that the folders lack.
  std::int64_t n_missing() const;
  // Throws Error(kInvalidArgument) if another folder has another sample by the same name.
  void add_sample(const std::string& folder, const Json& json);

  Results results_;
  // The answers of each run, of which several folders may have shards. Folders of different runs may share answers, so
  // each run is compared with its own number.
  std::map<Json, std::set<AnswerKey>> answered_;
  std::map<AnswerKey, Answer> answers_;
  std::map<SampleKey, KnownSample> samples_;
  std::vector<ReadFolder> folders_;
};

void JoinedRuns::add(const std::string& folder) {
  StoredRun run = read_run(folder);
  read_fields(folder, "run.json", [&] { add_configuration(folder, run); });
  read_fields(folder, "samples-*.jsonl", [&] {
    for (const Json& json : run.samples) add_sample(folder, json);
  });
  for (auto& [key, answer] : run.answers) add_answer(answers_, std::move(answer));
}

void JoinedRuns::add_configuration(const std::string& folder, const StoredRun& run) {
  const ReadFolder own{folder, run.configuration};
  for (const ReadFolder& other : folders_) check_comparable(other, own);
  folders_.push_back(own);
  check_reference(folder, run);
  add_with_own_types(results_.methods_with_own_types, run);
  results_.model = run.configuration.value("model", "");
  add_new(results_.methods, run.configuration.at("methods"));
  add_new(results_.budgets, run.configuration.at("budgets"));
  // Machines that share a run out differ in what they could take at once.
  Json shared = run.configuration;
  for (const char* measured : {"kv_memory", "batch", "batch_tokens"}) shared.erase(measured);
  std::set<AnswerKey>& answered = answered_[shared];
  for (const auto& [key, answer] : run.answers) answered.insert(key);
}

std::int64_t JoinedRuns::n_missing() const {
  std::int64_t n = 0;
  for (const auto& [configuration, answered] : answered_) {
    n += std::max(configuration.value("answers", std::int64_t{0}) - std::ssize(answered), std::int64_t{0});
  }
  return n;
}

void JoinedRuns::add_sample(const std::string& folder, const Json& json) {
  KnownSample own{sample_info(json), json.value(kSampleDigest, ""), folder};
  const SampleKey key{json.at("benchmark"), json.at("task"), json.at("id"), json.at("question")};
  const auto [place, is_new] = samples_.try_emplace(key, own);
  KnownSample& known = place->second;
  if (is_new) return;
  if (!are_same(known, own)) {
    const auto& [benchmark, task, id, question] = key;
    throw Error(ErrorCode::kInvalidArgument,
                "'" + known.folder + "' and '" + folder + "' are runs of " + benchmark +
                    " that do not compare (sample " + id + " of " + task +
                    " is another in the second): report one at a time, or run one of them again, into a new folder, "
                    "with the --lengths, --depths, --limit, --haystack, --words and --data of the other");
  }
  if (known.digest.empty()) known = std::move(own);
}

Results JoinedRuns::results() {
  drop_ambiguous(results_.methods_with_own_types, answers_);
  results_.n_expected = std::ssize(answers_) + n_missing();
  const auto unknown = std::make_shared<const SampleInfo>();
  for (auto& [key, answer] : answers_) {
    const auto found = samples_.find({key.benchmark, key.task, key.id, key.question});
    results_.results.push_back({std::move(answer), found == samples_.end() ? unknown : found->second.info});
  }
  for (const ReadFolder& folder : folders_) results_.folders.push_back(folder.path);
  return std::move(results_);
}

}  // namespace

Results load_results(const std::vector<std::string>& folders) {
  JoinedRuns runs;
  for (const std::string& folder : folders) runs.add(folder);
  return runs.results();
}

}  // namespace winnow::eval
