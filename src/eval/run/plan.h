// From what a user asks for to the samples of a run and the configuration that its folder remembers.
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
  std::optional<bool> use_chat_template;  // none: where the model has one
  std::int32_t n_ctx = 0;                 // 0: the model's
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  PrefillWeights prefill_weights = PrefillWeights::kAuto;
  SampleOptions samples;                    // tasks, lengths, limit, seed, ...; data is overridden by `data`
  std::map<std::string, std::string> data;  // by benchmark; "": of those not named
};

struct Plan {
  std::vector<Cell> cells;
  std::vector<WorkItem> items;  // of all shards
  std::unique_ptr<PromptBuilder> prompts;
  std::int32_t n_ctx = 0;
  nlohmann::json configuration;    // what the answers depend on
  std::vector<std::string> notes;  // for the user: sentences

  std::vector<const WorkItem*> items_of(const Shard& shard) const;
};

// What can be known to be wrong without a model: methods, budgets and benchmarks, tasks, and inputs without effect.
// Throws Error. Returns every method at every budget.
std::vector<Cell> check_request(const EvaluationRequest& request);

// Throws Error for what contradicts itself or the model, and what the benchmarks throw.
// `cells` are those of check_request.
Plan make_plan(const EvaluationRequest& request, std::vector<Cell> cells, const std::shared_ptr<const Model>& model);

}  // namespace winnow::eval
