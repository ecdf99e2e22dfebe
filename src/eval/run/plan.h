// Turns a user's request into the samples of a run and the configuration that its folder stores.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/run/prompt.h"
#include "eval/run/work_item.h"
#include "winnow/session.h"

namespace winnow::eval {

struct EvaluationRequest {
  std::vector<std::string> benchmarks;
  std::vector<std::string> methods;  // each may be a list, see split_methods
  std::vector<std::string> budgets;
  std::vector<QuestionMode> modes{QuestionMode::kAgnostic};
  std::optional<bool> use_chat_template;  // not set: if the model has one
  std::int32_t n_ctx = 0;                 // 0: the model's
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  PrefillWeights prefill_weights = PrefillWeights::kAuto;
  SampleOptions samples;                    // tasks, lengths, limit, seed, ...; data is overridden by `data`
  std::map<std::string, std::string> data;  // files by benchmark; "": for those not named
};

struct Plan {
  std::vector<Cell> cells;
  std::vector<WorkItem> items;  // of all shards
  std::unique_ptr<PromptBuilder> prompts;
  std::int32_t n_ctx = 0;
  nlohmann::json configuration;    // settings that the answers depend on
  std::vector<std::string> notes;  // sentences for the user

  std::vector<const WorkItem*> items_of(const Shard& shard) const;
};

// Checks what can be checked without a model: methods, budgets, benchmarks, tasks, and inputs without effect. Returns
// every method at every budget. Throws Error for what is wrong.
std::vector<Cell> check_request(const EvaluationRequest& request);

// Returns the plan of a request, with the `cells` that check_request returned. Throws Error for a request that
// contradicts itself or the model, and what the benchmarks throw.
Plan make_plan(const EvaluationRequest& request, std::vector<Cell> cells, const std::shared_ptr<const Model>& model);

}  // namespace winnow::eval
