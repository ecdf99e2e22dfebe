// The answers of one or several folders of `winnow eval`, joined with the data of their samples.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "eval/run/answer.h"

namespace winnow::eval {

struct SampleInfo {
  std::string group, cluster, context;
  std::map<std::string, double> coordinates;
  struct Question {
    std::string text;
    std::vector<std::string> references;
    bool operator==(const Question&) const = default;
  };
  std::vector<Question> turns;
};

struct Result {
  Answer answer;
  std::shared_ptr<const SampleInfo> sample;  // never null
};

struct Results {
  std::string model;                 // name or file of the model that all answers are from
  std::vector<std::string> methods;  // in the order in which the runs list them
  std::vector<std::string> budgets;  // likewise; "" (the full cache) is not among them
  std::vector<std::string> folders;
  std::vector<Result> results;                   // one per key
  std::int64_t n_expected = 0;                   // answers that the runs have once complete
  std::set<std::string> methods_with_own_types;  // methods that choose the types of their entries, as auto does
};

// Reads the folders. Of several answers with the same key the last one that did not fail counts. Throws
// Error(kInvalidArgument) for runs of different models, and of one benchmark with other prompts or scores, kUnsupported
// for fidelity to a full cache of quantised entries, kBadFile for a file that lacks a field, and what read_run throws.
Results load_results(const std::vector<std::string>& folders);

}  // namespace winnow::eval
