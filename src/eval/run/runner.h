// Runs a matrix of methods and budgets over samples. The prompt passes through the model once for all cells that fit in
// memory together, each cut to its own budget; the answers are decoded together.
//
// The groups that are computed together depend on the samples, the matrix and the limits alone, never on which answers
// exist: a killed and resumed run ends with the same answers, bit for bit, as an uninterrupted one (on the same machine
// and threads).
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "eval/run/answer.h"
#include "eval/run/prompt.h"
#include "eval/run/result_store.h"
#include "winnow/evaluation.h"
#include "winnow/session.h"

namespace winnow::eval {

struct RunnerOptions {
  std::vector<Cell> cells;
  EntryType key_type = EntryType::kF16;
  EntryType value_type = EntryType::kF16;
  std::int32_t n_ctx = 0;     // most tokens of a sequence
  int batch = 32;             // most sequences at a time; 1: every cell alone, so that its times are its own
  std::size_t kv_memory = 0;  // bytes of KV pages, staging buffer and hidden states of all that runs together
  // Most tokens, read and generated, of samples that run together; a single sample may have more. A cell that needs
  // another pass over its prompt joins a group only if that leaves room for it.
  std::int64_t batch_tokens = std::numeric_limits<std::int64_t>::max();
};

struct RunnerCallbacks {
  std::function<double(const Sample&, const Turn&, std::string_view answer)> score;
  std::function<bool()> should_stop;                                       // called between steps
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;  // called with numbers of answers
  std::function<void(const EvaluationWork&)> on_work;                      // called after every step of the engine
};

// Returns the lengths in tokens of the prompts that are cut, each number once, ascending. Samples that cannot be asked
// are left out.
std::vector<std::int32_t> prompt_lengths(const PromptBuilder& prompts, std::span<const WorkItem* const> items);

// Throws Error that lists the cells to which prompts of these lengths could not be cut. Only the cells, types and
// context of the options are used.
void check_cells(const Engine& engine, const RunnerOptions& options, std::span<const std::int32_t> lengths);

// Not thread-safe.
class Runner {
 public:
  // Throws what check_cells throws for a prompt as long as the context.
  Runner(std::shared_ptr<Engine> engine, const PromptBuilder& prompts, RunnerOptions options,
         RunnerCallbacks callbacks);
  ~Runner();

  // Appends an answer, or the reason why there is none, to the store for every turn and cell that it lacks. Returns
  // false if stopped. Throws what the store throws; an error in one sample is recorded and does not end the run.
  bool run(std::span<const WorkItem* const> items, ResultStore& store);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the number of answers that a run of these items has in the end.
std::int64_t count_answers(std::span<const WorkItem* const> items, std::size_t n_cells);

}  // namespace winnow::eval
