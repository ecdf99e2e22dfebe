// A plan's answers, into a folder.
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
  std::optional<int> batch;              // most sequences at a time; none: kDefaultBatch, or what the run began with
  std::optional<std::size_t> kv_memory;  // of what runs together; none: the engine's limit, else half of what is free
  std::optional<std::int64_t> batch_tokens;  // RunnerOptions'; none: what is read in a minute, or as the run began
  ResultStore::Start start = ResultStore::Start::kNewOrResume;
  bool retry_failed = false;
};

struct RunCallbacks {
  std::function<bool()> should_stop;                                       // looked at between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  // answers
  std::function<void(const EvaluationWork&)> on_work;                      // after every step of the engine
};

// Runs what of the plan is not in the folder yet, on an engine with the request's weights. False where it was stopped.
// Throws Error for a shard without samples and cells that cannot be cut, before there is a folder, and what ResultStore
// and Runner throw.
bool run_plan(const Plan& plan, const EvaluationRequest& request, const std::shared_ptr<Engine>& engine,
              const EngineOptions& engine_options, const RunOptions& options, const RunCallbacks& callbacks);

}  // namespace winnow::eval
