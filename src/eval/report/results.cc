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
  std::string fingerprint;
  for (const std::string& folder : folders) {
    StoredRun run = read_run(folder);
    const std::string own = run.configuration.value("model_fingerprint", "");
    if (!fingerprint.empty() && own != fingerprint) {
      throw Error(ErrorCode::kInvalidArgument, "'" + folder + "' is a run of a different model from '" + folders[0] +
                                                   "': report one model at a time");
    }
    fingerprint = own;
    check_reference(folder, run);
    add_with_own_types(results.methods_with_own_types, run);
    results.model = run.configuration.value("model", "");
    add_new(results.methods, run.configuration.at("methods"));
    add_new(results.budgets, run.configuration.at("budgets"));
    results.n_expected += run.configuration.value("answers", std::int64_t{0});
    answers.merge(run.answers);
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
