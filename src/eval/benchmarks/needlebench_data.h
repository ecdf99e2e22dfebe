// What NeedleBench hides: needles with their questions, and chains of ancestors over random names.
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

// needles.jsonl and names.json of options.data, a folder; those that ship if it is empty.
NeedleData read_needle_data(const SampleOptions& options);

// n distinct needles of a language. Throws Error(kInvalidArgument) if there are fewer.
std::vector<Needle> draw_needles(const NeedleData& data, const std::string& language, std::size_t n, Random& random);

struct Chain {
  std::vector<std::string> names;  // from the eldest on
  std::vector<std::string> facts;  // in random order
  int generations = 0;             // from one end to the other
};
Chain draw_chain(const NeedleData& data, const std::string& language, std::size_t n_facts, Random& random);

// The questions one after the other, and what they ask the answer to look like.
std::string joined_questions(const std::vector<Needle>& needles, const nlohmann::json& row);

}  // namespace winnow::eval
