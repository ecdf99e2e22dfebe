#include "eval/run/plan.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <tuple>

#include "base/fnv1a.h"
#include "eval/run/result_store.h"
#include "eval/run/runner.h"
#include "eval/sample_files.h"
#include "eval/task_table.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using Json = nlohmann::json;

void check_lengths(const std::vector<std::int32_t>& lengths, std::int32_t n_ctx) {
  for (const std::int32_t length : lengths) {
    if (length <= n_ctx) continue;
    throw Error(ErrorCode::kInvalidArgument, "a length of " + std::to_string(length) +
                                                 " tokens does not fit in the context of " + std::to_string(n_ctx) +
                                                 ": leave it out, or raise -c if the model can do more");
  }
}

// Throws Error for passages that do not fit in the context with what follows them: every method would fail on them.
void check_passages(const Plan& plan) {
  for (const WorkItem& item : plan.items) {
    if (asks(item.protocol)) continue;
    try {
      plan.prompts->continued(item.sample);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kContextFull) continue;  // the run records what is wrong with a sample
      throw Error(ErrorCode::kContextFull, item.benchmark + ": " + error.what());
    }
  }
}

void check_data_names(const EvaluationRequest& request) {
  for (const auto& [name, path] : request.data) {
    const auto has_it = [&, name = name](const std::string& benchmark) { return samples_of(benchmark) == name; };
    const bool is_known = name.empty() || std::any_of(request.benchmarks.begin(), request.benchmarks.end(), has_it);
    if (!is_known) {
      throw Error(ErrorCode::kInvalidArgument,
                  "data is given for '" + name + "', which is not among the benchmarks: leave it out");
    }
  }
}

bool reads(const std::string& benchmark, std::string_view input) {
  const std::vector<std::string_view> inputs = find_benchmark(benchmark).inputs();
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

// Throws Error(kInvalidArgument) for inputs that none of the benchmarks reads.
void check_inputs(const EvaluationRequest& request) {
  const SampleOptions& samples = request.samples;
  const std::tuple<const char*, const char*, bool> given[] = {{"lengths", "--lengths", !samples.lengths.empty()},
                                                              {"depths", "--depths", !samples.depths.empty()},
                                                              {"haystack", "--haystack", !samples.haystack.empty()},
                                                              {"words", "--words", !samples.words.empty()},
                                                              {"data", "--data", !request.data.empty()},
                                                              {"data", "--skip-bad", samples.skip_bad}};
  std::string names;
  for (const std::string& name : request.benchmarks) names += (names.empty() ? "" : ", ") + name;
  const auto refuse = [](const std::string& flag, const std::string& benchmarks) {
    throw Error(ErrorCode::kInvalidArgument, flag + " has no effect on " + benchmarks + ": leave it out");
  };
  for (const auto& [input, flag, is_given] : given) {
    const auto takes_it = [&, input = input](const std::string& name) { return reads(name, input); };
    if (is_given && std::none_of(request.benchmarks.begin(), request.benchmarks.end(), takes_it)) refuse(flag, names);
  }
  for (const auto& [name, path] : request.data) {
    if (!name.empty() && !reads(name, "data")) refuse("--data", name);
  }
  const bool has_questions = std::any_of(request.benchmarks.begin(), request.benchmarks.end(),
                                         [](const auto& name) { return asks(protocol_of(name)); });
  if (!has_questions && request.benchmarks.size() == 1 && request.modes == std::vector{QuestionMode::kAware}) {
    throw Error(ErrorCode::kInvalidArgument, names + " has no questions to be aware of: leave --question out");
  }
}

// Returns the question modes in which a benchmark is run. Running text has no question.
std::vector<QuestionMode> modes_of(const EvaluationRequest& request, const std::string& benchmark, Plan& plan) {
  if (asks(protocol_of(benchmark))) return request.modes;
  if (request.modes == std::vector{QuestionMode::kAware}) {
    plan.notes.push_back(benchmark + " has no questions: its cache is cut without one.");
  }
  return {QuestionMode::kAgnostic};
}

bool has_task(const Benchmark& benchmark, const std::string& task) {
  const std::vector<std::string> tasks = benchmark.tasks();
  return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

// Returns the tasks of a benchmark to run. With several benchmarks each takes its own tasks of the list, or all of them
// if the list has none; a task that none of them has stays in the list and is refused.
std::vector<std::string> tasks_of(const EvaluationRequest& request, const Benchmark& benchmark) {
  std::vector<std::string> tasks = request.samples.tasks;
  if (request.benchmarks.size() == 1) return tasks;
  std::erase_if(tasks, [&](const std::string& task) {
    return !has_task(benchmark, task) &&
           std::any_of(request.benchmarks.begin(), request.benchmarks.end(),
                       [&](const std::string& other) { return has_task(find_benchmark(other), task); });
  });
  return tasks;
}

void add_items(const EvaluationRequest& request, const std::string& name, Plan& plan) {
  const Benchmark& benchmark = find_benchmark(name);
  SampleOptions options = request.samples;
  const std::string source(samples_of(name));
  const auto data = request.data.contains(source) ? request.data.find(source) : request.data.find("");
  if (data != request.data.end()) options.data = data->second;
  options.tasks = tasks_of(request, benchmark);
  options.chat_prompts = plan.prompts->uses_chat_template();
  options.reserved_tokens = plan.prompts->template_tokens();
  for (const QuestionMode mode : modes_of(request, name, plan)) {
    // SCBench's multi-turn and multi-request modes are the two question modes.
    options.multi_request = mode == QuestionMode::kAgnostic;
    std::set<std::pair<std::string, std::string>> known;
    for (Sample& sample : benchmark.samples(options)) {
      if (!known.emplace(sample.task, sample.id).second) {
        throw Error(ErrorCode::kBadFile, "two samples of " + sample.task + " have the id '" + sample.id + "'");
      }
      plan.items.push_back({name, std::move(sample), mode, protocol_of(name)});
    }
  }
}

// Returns true if any answer is scored by Chinese words.
bool wants_jieba(const std::vector<WorkItem>& items) {
  return std::any_of(items.begin(), items.end(), [](const WorkItem& item) {
    return item.protocol == Protocol::kAnswer &&
           std::any_of(item.sample.turns.begin(), item.sample.turns.end(),
                       [](const Turn& turn) { return metric_wants_jieba(turn.metric); });
  });
}

// Adds to the configuration what scores depend on besides the samples' texts, and a note on what papers do otherwise.
void add_scoring(Plan& plan) {
  const std::string classes = classes_digest(plan.items);
  if (!classes.empty()) plan.configuration[kClassesDigest] = classes;
  if (!wants_jieba(plan.items)) return;
  const std::string source = chinese_words_source();
  plan.configuration[kChineseWords] = source;
  if (source != kCharacters) return;
  plan.notes.push_back(
      "Chinese answers are scored by characters in the place of words: scores are not comparable with those in "
      "papers. --jieba names the folder of a dictionary.");
}

// Throws Error(kInvalidArgument) for a table of another shape than the model's. Otherwise the error would come only
// when a cut needs its weights.
//   heads: [n_layer] of the table; a file of head importances may have query heads
void check_shape(const std::string& method, const std::string& kind, const std::vector<int>& heads,
                 const ModelInfo& info) {
  bool fits = heads.size() == info.layers.size();
  for (std::size_t l = 0; fits && l < heads.size(); ++l) {
    const LayerInfo& layer = info.layers[l];
    if (kind == "profile") {
      fits = heads[l] == layer.n_evictable_heads();
    } else if (layer.is_evictable()) {
      fits = heads[l] == layer.n_kv_head || heads[l] == layer.n_head;
    }
  }
  if (fits) return;
  const auto text = [](std::size_t n_layer, const std::vector<int>& of_layers) {
    const bool is_even = std::equal(of_layers.begin() + 1, of_layers.end(), of_layers.begin());
    return std::to_string(n_layer) + (is_even ? " layers of " + std::to_string(of_layers.front()) : " layers of other");
  };
  throw Error(ErrorCode::kInvalidArgument, "'" + method + "': its " + kind + " is for " + text(heads.size(), heads) +
                                               " heads, but the model has " +
                                               text(info.layers.size(), info.dimension(&LayerInfo::n_kv_head)) +
                                               " KV heads: name the " + kind + " of this model");
}

// Loads the files that cells read, once: a run must not begin with a method for which no session could be opened.
// Returns a digest of each method's file, by the method's text, because a file may change between two starts.
Json load_tables(std::vector<Cell>& cells, const ModelInfo& info) {
  Json digests = Json::object();
  for (Cell& cell : cells) {
    EvictionOptions& eviction = cell.eviction;
    eviction.find_profile(info.fingerprint);
    if (eviction.utility_profile) {
      check_shape(cell.method, "profile", eviction.utility_profile->heads, info);
      digests[cell.method] = text_key(Json{eviction.utility_profile->ratios, eviction.utility_profile->kept}.dump());
    } else if (eviction.importance) {
      std::vector<int> heads;
      for (const auto& layer : eviction.importance->weight) heads.push_back(static_cast<int>(layer.size()));
      check_shape(cell.method, "file", heads, info);
      std::vector<double> weights;
      for (const auto& layer : eviction.importance->weight) weights.insert(weights.end(), layer.begin(), layer.end());
      digests[cell.method] = text_key(Json(weights).dump());
    }
  }
  return digests;
}

// Throws Error(kInvalidArgument) for an item of a list that is there twice.
template <typename Item>
void refuse_twice(const std::string& what, std::vector<Item> list) {
  std::sort(list.begin(), list.end());
  const auto twice = std::adjacent_find(list.begin(), list.end());
  if (twice == list.end()) return;
  std::ostringstream text;
  text << *twice;
  throw Error(ErrorCode::kInvalidArgument, what + " " + text.str() + " is given twice: name it once");
}

}  // namespace

std::vector<const WorkItem*> Plan::items_of(const Shard& shard) const {
  std::vector<const WorkItem*> chosen;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(shard.count)) == shard.index) chosen.push_back(&items[i]);
  }
  return chosen;
}

std::vector<Cell> check_request(const EvaluationRequest& request) {
  std::vector<std::string> methods;
  for (const std::string& list : request.methods) {
    for (std::string& method : split_methods(list)) methods.push_back(std::move(method));
  }
  std::vector<Cell> cells = make_cells(methods, request.budgets);
  refuse_twice("the benchmark", request.benchmarks);
  refuse_twice("the task", request.samples.tasks);
  refuse_twice("the length", request.samples.lengths);
  refuse_twice("the depth", request.samples.depths);
  for (const std::string& name : request.benchmarks) {
    const Benchmark& benchmark = find_benchmark(name);
    if (!asks(protocol_of(samples_of(name))) && asks(protocol_of(name))) {
      throw Error(ErrorCode::kInvalidArgument,
                  "'" + name + "': " + std::string(benchmark.name()) +
                      " has no questions to answer: use `fidelity` by itself for running text");
    }
    SampleOptions options;
    options.tasks = tasks_of(request, benchmark);
    selected_tasks(options, benchmark.tasks(), name);
  }
  check_data_names(request);
  check_inputs(request);
  return cells;
}

Plan make_plan(const EvaluationRequest& request, std::vector<Cell> cells, const std::shared_ptr<const Model>& model) {
  Plan plan;
  plan.cells = std::move(cells);

  const ModelInfo& info = model->info();
  const Json tables = load_tables(plan.cells, info);
  plan.n_ctx = request.n_ctx > 0 ? request.n_ctx : info.n_ctx_train;
  check_lengths(request.samples.lengths, plan.n_ctx);
  const bool use_chat_template = request.use_chat_template.value_or(model->has_chat_template());
  plan.prompts = std::make_unique<PromptBuilder>(model, use_chat_template, plan.n_ctx);
  for (const std::string& name : request.benchmarks) add_items(request, name, plan);
  if (plan.items.empty()) throw Error(ErrorCode::kInvalidArgument, "there are no samples: check --tasks and --data");
  check_passages(plan);

  Json method_texts = Json::array(), budget_texts = Json::array(), mode_names = Json::array();
  const auto add_new = [](Json& list, const std::string& text) {
    if (!text.empty() && std::find(list.begin(), list.end(), Json(text)) == list.end()) list.push_back(text);
  };
  for (const Cell& cell : plan.cells) {
    add_new(method_texts, cell.method);
    add_new(budget_texts, cell.budget_text);
  }
  for (const QuestionMode mode : request.modes) mode_names.push_back(question_mode_name(mode));
  const std::vector<const WorkItem*> all = plan.items_of({});
  const EntryTypes types = entry_types(request.key_type, request.value_type);
  plan.configuration = {{"model", info.name},
                        {"model_fingerprint", hex_text(info.fingerprint)},
                        {kModelMetadata, hex_text(info.metadata_fingerprint)},
                        {"benchmarks", request.benchmarks},
                        {"tasks", request.samples.tasks},
                        {"methods", std::move(method_texts)},
                        {"budgets", std::move(budget_texts)},
                        {"question", std::move(mode_names)},
                        {"chat_template", use_chat_template},
                        {"context", plan.n_ctx},
                        {"key_type", types.key},
                        {"value_type", types.value},
                        {"prefill_weights", static_cast<int>(request.prefill_weights)},
                        {"limit", request.samples.limit},
                        {"seed", request.samples.seed},
                        {"lengths", request.samples.lengths},
                        {"depths", request.samples.depths},
                        {"samples", plan.items.size()},
                        {"samples_digest", digest(plan.items)},
                        {"answers", count_answers(all, plan.cells.size())}};
  const bool has_fidelity = std::any_of(request.benchmarks.begin(), request.benchmarks.end(),
                                        [](const auto& name) { return compares(protocol_of(name)); });
  if (has_fidelity && types != reference_types(types)) {
    // Earlier versions did not record this, and compared with the full cache in the run's own types.
    plan.configuration[kReferenceTypes] = reference_types(types).text();
  }
  if (!tables.empty()) plan.configuration["tables"] = tables;
  add_scoring(plan);
  return plan;
}

}  // namespace winnow::eval
