// The rules of a GBNF grammar that is being made.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace winnow {

class GrammarRules {
 public:
  // The names of the rules are `prefix` and a number.
  explicit GrammarRules(std::string prefix) : prefix_(std::move(prefix)) {}

  // Adds a rule for `text`, unless an earlier one has the same text, and returns its name. All methods throw
  // Error(kInvalidArgument) if the grammar becomes longer than one may be.
  std::string add(const std::string& text);
  // Returns a name whose rule is defined later.
  std::string reserve();
  void define(const std::string& name, std::string text);

  std::string text() const;

 private:
  void count(std::size_t n_bytes);

  std::string prefix_;
  std::size_t n_names_ = 0, n_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> rules_;  // name and text
  std::unordered_map<std::string, std::string> names_;      // by the text
};

// Returns `text` as a GBNF literal.
std::string grammar_literal(const std::string& text);

}  // namespace winnow
