// Runs a plan and writes its answers to a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "eval/run/matrix.h"
#include "eval/run/plan.h"
#include "eval/run/result_store.h"
#include "winnow/evaluation.h"
#include "winnow/session.h"

namespace winnow::eval {

inline constexpr int kDefaultBatch = 32;

struct RunOptions {
  std::string folder;
  Shard shard;
  std::optional<int> batch;  // most sequences at a time; not set: kDefaultBatch, or what the run began with
  // Bytes for all that runs together; not set: the engine's limit, else half of the free memory.
  std::optional<std::size_t> kv_memory;
  std::optional<std::int64_t> batch_tokens;  // see RunnerOptions; not set: those read in a minute, or as the run began
  ResultStore::Start start = ResultStore::Start::kNewOrResume;
  bool retry_failed = false;
};

struct RunCallbacks {
  std::function<bool()> should_stop;                                       // called between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  // called with numbers of answers
  std::function<void(const EvaluationWork&)> on_work;                      // called after every step of the engine
};

// Computes the answers of the plan that are not in the folder yet, on an engine with the request's weights. Returns
// false if it was stopped. Throws Error for a shard without samples and for cells that cannot be cut, before a folder
// is made, and what ResultStore and Runner throw.
bool run_plan(const Plan& plan, const EvaluationRequest& request, const std::shared_ptr<Engine>& engine,
              const EngineOptions& engine_options, const RunOptions& options, const RunCallbacks& callbacks);

}  // namespace winnow::eval
