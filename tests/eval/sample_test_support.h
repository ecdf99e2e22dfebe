// Helpers of the tests of samples: temporary files, a tokenizer without a model, and the shared templates.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/sample.h"
#include "expect_error.h"
#include "temporary_directory.h"
#include "winnow/error.h"

namespace winnow::eval {

// Returns the tokens of a text: words with the white space before them, and punctuation.
inline std::vector<std::string> word_tokens(std::string_view text) {
  std::vector<std::string> tokens;
  bool in_word = false;
  bool in_space = false;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    const bool punctuation = std::ispunct(static_cast<unsigned char>(c)) != 0;
    const bool goes_on = !tokens.empty() && ((in_word && !space && !punctuation) ||
                                             (in_space && !punctuation && !space) || (in_space && space));
    if (!goes_on) tokens.emplace_back();
    tokens.back() += c;
    in_word = !space && !punctuation;
    in_space = space;
  }
  return tokens;
}

inline SampleOptions with_words() {
  SampleOptions options;
  options.split_tokens = word_tokens;
  options.count_tokens = [](std::string_view text) { return static_cast<std::int32_t>(word_tokens(text).size()); };
  return options;
}

// Returns the folder of shared data, or "" without it.
inline std::string shared_data() {
  const char* shared = std::getenv("WINNOW_SHARED");
  return shared == nullptr ? "" : std::string(shared) + "/data";
}

inline nlohmann::json shared_templates() {
  return nlohmann::json::parse(std::ifstream(shared_data() + "/templates.json"));
}

inline std::string whole_prompt(const Sample& sample) {
  return sample.context + sample.turns[0].question + sample.turns[0].answer_prefix;
}

using test::message_of;

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace winnow::eval
