// The matrix of an evaluation: methods x budgets x question modes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/eviction.h"

namespace winnow::eval {

// The time of the cut: with the question in sight, or before it is known.
enum class QuestionMode { kAware, kAgnostic };
std::string_view question_mode_name(QuestionMode mode);

// Parses "aware", "agnostic" or "both"; throws Error(kInvalidArgument) for other text.
std::vector<QuestionMode> parse_question_modes(std::string_view text);

// A cell of the matrix: a method at a budget.
struct Cell {
  EvictionOptions eviction;
  std::optional<Budget> budget;  // not set: the full cache
  std::string method;            // text forms, as written in results
  std::string budget_text;       // "" for the full cache
};

// Returns the methods of a list, separated by ';' or ','. A part NAME=VALUE after a comma still belongs to the method
// before it ("snapkv:window=16,pool=none,tova" are two).
std::vector<std::string> split_methods(std::string_view list);

// Returns every evicting method with every budget, and `full` once. Throws Error(kInvalidArgument) for a repetition,
// for evicting methods without budgets and for budgets without evicting methods.
std::vector<Cell> make_cells(const std::vector<std::string>& methods, const std::vector<std::string>& budgets);

// The part of the work of one of several processes: the work items whose number modulo `count` is `index`.
struct Shard {
  int index = 0;  // from 0
  int count = 1;

  // Parses "i/n" with i from 1 to n; throws Error(kInvalidArgument) for other text.
  static Shard parse(std::string_view text);
  std::string text() const;  // "1/4"
};

}  // namespace winnow::eval
