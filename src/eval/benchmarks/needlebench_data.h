// The data of NeedleBench: needles with their questions, and chains of ancestors over random names.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/random.h"
#include "eval/sample.h"

namespace winnow::eval {

struct Needle {
  std::string language, keyword, text, question;
};

struct NeedleData {
  std::vector<Needle> needles;
  nlohmann::json names;  // language -> names joined by ","
};

// Reads needles.jsonl and names.json of the folder options.data, or those that ship if it is empty. Throws
// Error(kNotFound, kBadFile).
NeedleData read_needle_data(const SampleOptions& options);

// Returns n distinct needles of a language. Throws Error(kInvalidArgument) if there are fewer.
std::vector<Needle> draw_needles(const NeedleData& data, const std::string& language, std::size_t n, Random& random);

struct Chain {
  std::vector<std::string> names;  // from the eldest on
  std::vector<std::string> facts;  // in random order
  int generations = 0;             // from one end of the chain to the other
};
// Returns a chain of n_facts + 1 random names. Throws Error(kInvalidArgument) if the language has fewer names.
Chain draw_chain(const NeedleData& data, const std::string& language, std::size_t n_facts, Random& random);

// Returns the questions one after the other, followed by the format in which they ask for the answer.
std::string joined_questions(const std::vector<Needle>& needles, const nlohmann::json& row);

}  // namespace winnow::eval
