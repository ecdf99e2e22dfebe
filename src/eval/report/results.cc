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
using SampleKey = std::tuple<std::string, std::string, std::string>;  // benchmark, task, id

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

}  // namespace

Results load_results(const std::vector<std::string>& folders) {
  Results results;
  results.folders = folders;
  std::map<AnswerKey, Answer> answers;
  std::map<SampleKey, std::shared_ptr<const SampleInfo>> samples;
  std::vector<ReadFolder> before;
  for (const std::string& folder : folders) {
    StoredRun run = read_run(folder);
    const ReadFolder own{folder, run.configuration};
    for (const ReadFolder& other : before) check_comparable(other, own);
    before.push_back(own);
    check_reference(folder, run);
    add_with_own_types(results.methods_with_own_types, run);
    results.model = run.configuration.value("model", "");
    add_new(results.methods, run.configuration.at("methods"));
    add_new(results.budgets, run.configuration.at("budgets"));
    results.n_expected += run.configuration.value("answers", std::int64_t{0});
    for (auto& [key, answer] : run.answers) add_answer(answers, std::move(answer));
    for (const Json& json : run.samples) {
      samples.try_emplace({json.at("benchmark"), json.at("task"), json.at("id")}, sample_info(json));
    }
  }
  drop_ambiguous(results.methods_with_own_types, answers);
  const auto unknown = std::make_shared<const SampleInfo>();
  for (auto& [key, answer] : answers) {
    const auto found = samples.find({key.benchmark, key.task, key.id});
    results.results.push_back({std::move(answer), found == samples.end() ? unknown : found->second});
  }
  return results;
}

}  // namespace winnow::eval
