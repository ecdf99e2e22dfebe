// The input of the runner: a sample, its benchmark, and how it is asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/run/matrix.h"
#include "eval/sample.h"

namespace winnow::eval {

enum class Protocol {
  kAnswer,          // generate, and score the answer
  kFidelity,        // force the true continuation, and compare with the full cache's predictions
  kAnswerFidelity,  // the same with the full cache's answer to the question
  kPerplexity,      // force the true continuation
};

// Returns true if samples have questions: the cache is cut before or after them, and a sample may have several.
constexpr bool asks(Protocol protocol) {
  return protocol == Protocol::kAnswer || protocol == Protocol::kAnswerFidelity;
}
// Returns true if predictions are compared with the full cache's.
constexpr bool compares(Protocol protocol) {
  return protocol == Protocol::kFidelity || protocol == Protocol::kAnswerFidelity;
}

struct WorkItem {
  std::string benchmark;
  Sample sample;
  QuestionMode mode = QuestionMode::kAgnostic;
  Protocol protocol = Protocol::kAnswer;
};

// Returns true if turns after the first continue with the cache of the turn before (SCBench's multi-turn mode).
bool is_multi_turn(const Sample& sample);
inline bool is_multi_turn(const WorkItem& item) {
  return item.mode == QuestionMode::kAware && is_multi_turn(item.sample);
}

// Returns the protocol of a benchmark, by its name.
Protocol protocol_of(std::string_view benchmark);

// Returns a digest that changes when any of the samples does: a resumed run must go on with the same ones.
std::string digest(const std::vector<WorkItem>& items);
// Returns a digest of the classes that answers are told apart from, or "" if no sample has any.
std::string classes_digest(const std::vector<WorkItem>& items);

}  // namespace winnow::eval
