#include "winnow/evaluation.h"

#include <utility>

#include "base/numbers.h"
#include "eval/report/results.h"
#include "eval/report/summary.h"
#include "eval/report/tables.h"
#include "eval/run/plan.h"
#include "eval/run/run_plan.h"

namespace winnow {
namespace {

eval::EvaluationRequest request_of(const EvaluationOptions& options, const EngineOptions& engine,
                                   const EvaluationCallbacks& callbacks) {
  eval::EvaluationRequest request;
  request.benchmarks = options.benchmarks;
  request.methods = options.methods;
  if (options.methods.empty() && !options.budgets.empty()) request.methods = {"full", "auto"};
  request.budgets = options.budgets;
  request.modes = eval::parse_question_modes(options.question);
  request.use_chat_template = options.use_chat_template;
  request.n_ctx = options.n_ctx;
  request.key_type = options.key_type;
  request.value_type = options.value_type;
  request.prefill_weights = engine.prefill_weights;
  request.data = options.data;
  eval::SampleOptions& samples = request.samples;
  samples.tasks = options.tasks;
  samples.lengths = options.lengths;
  samples.depths = options.depths;
  samples.haystack = options.haystack;
  samples.words = options.words;
  samples.limit = options.limit;
  samples.seed = options.seed;
  samples.skip_bad = options.skip_bad;
  samples.on_skipped = [note = callbacks.on_note](const std::string& what) {
    if (note) note("left out: " + what);
  };
  return request;
}

void check(const EvaluationOptions& options) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (options.benchmarks.empty()) refuse("no benchmark is given: name one, e.g. fidelity");
  if (options.limit < 0) refuse("the limit of samples is " + std::to_string(options.limit) + ": give 0 (all) or more");
  if (options.batch && *options.batch < 1) {
    refuse("the batch is " + std::to_string(*options.batch) + " sequences: give 1 or more");
  }
  if (options.batch_tokens && *options.batch_tokens < 1) {
    refuse("the batch is " + std::to_string(*options.batch_tokens) + " tokens: give 1 or more");
  }
  for (const std::int32_t length : options.lengths) {
    if (length < 1) refuse("a length is " + std::to_string(length) + " tokens: give 1 or more");
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 100)) {
      refuse("a depth is " + format_number(depth) + ": give a percentage from 0 to 100");
    }
  }
}

}  // namespace

bool evaluate(const std::shared_ptr<const Model>& model, const EngineOptions& engine_options,
              const EvaluationOptions& options, const std::string& folder, const EvaluationCallbacks& callbacks) {
  check(options);
  const eval::Shard shard = eval::Shard::parse(options.shard);
  eval::EvaluationRequest request = request_of(options, engine_options, callbacks);
  std::vector<eval::Cell> cells = check_request(request);
  eval::use_tokenizer(request.samples, model);
  const eval::Plan plan = make_plan(request, std::move(cells), model);
  if (callbacks.on_note) {
    for (const std::string& note : plan.notes) callbacks.on_note(note);
  }
  if (plan.items_of(shard).empty()) return true;
  return run_plan(
      plan, request, Engine::create(model, engine_options), engine_options,
      {.folder = folder,
       .shard = shard,
       .batch = options.batch,
       .kv_memory = options.kv_memory,
       .batch_tokens = options.batch_tokens,
       .retry_failed = options.retry_failed},
      {.should_stop = callbacks.should_stop, .on_progress = callbacks.on_progress, .on_work = callbacks.on_work});
}

std::string evaluation_csv(const std::vector<std::string>& folders) {
  return eval::csv(eval::summarize(eval::load_results(folders)));
}

std::vector<BenchmarkInfo> evaluation_benchmarks() {
  std::vector<BenchmarkInfo> all;
  for (const eval::Benchmark* benchmark : eval::benchmarks()) {
    all.push_back({std::string(benchmark->name()), std::string(benchmark->summary()), benchmark->tasks()});
  }
  return all;
}

}  // namespace winnow
