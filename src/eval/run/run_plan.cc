#include "eval/run/run_plan.h"

#include <utility>
#include <vector>

#include "eval/run/pace.h"
#include "eval/run/runner.h"
#include "winnow/error.h"

namespace winnow::eval {

bool run_plan(const Plan& plan, const EvaluationRequest& request, const std::shared_ptr<Engine>& engine,
              const EngineOptions& engine_options, const RunOptions& options, const RunCallbacks& callbacks) {
  const std::vector<const WorkItem*> items = plan.items_of(options.shard);
  if (items.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "shard " + options.shard.text() + " has no sample: there are only " +
                                                 std::to_string(plan.items.size()));
  }
  RunnerOptions runner_options{
      .cells = plan.cells, .key_type = request.key_type, .value_type = request.value_type, .n_ctx = plan.n_ctx};
  std::vector<std::int32_t> lengths = prompt_lengths(*plan.prompts, items);
  lengths.push_back(plan.n_ctx);
  check_cells(*engine, runner_options, lengths);

  // Grouping decides which sums are rounded together, so a resumed run keeps the settings that it began with.
  nlohmann::json configuration = plan.configuration;
  if (options.batch) configuration["batch"] = *options.batch;
  if (options.kv_memory) configuration["kv_memory"] = *options.kv_memory;
  if (options.batch_tokens) configuration["batch_tokens"] = *options.batch_tokens;
  const std::size_t limit = engine_options.kv_bytes_limit;
  const bool is_measured = !options.batch_tokens && !ResultStore::is_there(options.folder);
  const nlohmann::json defaults{
      {"batch", kDefaultBatch},
      {"kv_memory", limit > 0 ? limit : engine->free_memory().bytes_free / 2},
      {"batch_tokens", is_measured ? tokens_in_a_minute(*engine, plan.n_ctx) : runner_options.batch_tokens}};
  ResultStore store(options.folder, configuration, defaults, options.shard, options.start);
  if (options.retry_failed) store.forget_failures();
  store.write_samples(items);

  runner_options.batch = store.configuration().at("batch");
  runner_options.kv_memory = store.configuration().at("kv_memory");
  // Runs of earlier versions have none.
  runner_options.batch_tokens = store.configuration().value("batch_tokens", runner_options.batch_tokens);
  Runner runner(engine, *plan.prompts, runner_options,
                {.score = score_answer,
                 .should_stop = callbacks.should_stop,
                 .on_progress = callbacks.on_progress,
                 .on_work = callbacks.on_work});
  return runner.run(items, store);
}

}  // namespace winnow::eval
