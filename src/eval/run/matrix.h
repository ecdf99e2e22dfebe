// What is compared: methods x budgets x question modes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/eviction.h"

namespace winnow::eval {

// Whether the cache is cut with the question in sight, or before it is known.
enum class QuestionMode { kAware, kAgnostic };
std::string_view question_mode_name(QuestionMode mode);

// "aware", "agnostic" or "both"; throws Error(kInvalidArgument).
std::vector<QuestionMode> parse_question_modes(std::string_view text);

// A row of the matrix.
struct Cell {
  EvictionOptions eviction;
  std::optional<Budget> budget;  // none: the full cache
  std::string method;            // text forms, as they stand in results
  std::string budget_text;       // "" for the full cache
};

// The methods of a list. Methods are separated by ';', or by ',': a part NAME=VALUE after a comma still belongs to the
// method before it ("snapkv:window=16,pool=none,tova" are two).
std::vector<std::string> split_methods(std::string_view list);

// Every evicting method with every budget, `full` once. Throws Error(kInvalidArgument) for a repetition, for methods
// without budgets and budgets without methods that evict.
std::vector<Cell> make_cells(const std::vector<std::string>& methods, const std::vector<std::string>& budgets);

// The part of the work that one of several processes does: work items whose number is index modulo count.
struct Shard {
  int index = 0;  // from 0
  int count = 1;

  // "i/n" with i from 1 to n; throws Error(kInvalidArgument).
  static Shard parse(std::string_view text);
  std::string text() const;  // "1/4"
};

}  // namespace winnow::eval
