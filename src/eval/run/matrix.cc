#include "eval/run/matrix.h"

#include <algorithm>
#include <charconv>

#include "eviction/options/same_method.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Returns the pieces between separators, trimmed, without empty ones.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (const std::string_view piece = trimmed(text.substr(0, end)); !piece.empty()) pieces.push_back(piece);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

int whole_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// Returns true for "pool=none", but not for "snapkv:pool=none"; and for "4" or "8/4", the end of "bits=8:0.3,4".
bool is_further_option(std::string_view piece) {
  const std::size_t slash = piece.find('/');
  if (whole_number(piece.substr(0, slash)) >= 0 &&
      (slash == std::string_view::npos || whole_number(piece.substr(slash + 1)) >= 0)) {
    return true;
  }
  const std::size_t equals = piece.find('=');
  return equals != std::string_view::npos && piece.find(':') >= equals;
}

}  // namespace

std::string_view question_mode_name(QuestionMode mode) { return mode == QuestionMode::kAware ? "aware" : "agnostic"; }

std::vector<QuestionMode> parse_question_modes(std::string_view text) {
  if (text == "aware") return {QuestionMode::kAware};
  if (text == "agnostic") return {QuestionMode::kAgnostic};
  if (text == "both") return {QuestionMode::kAgnostic, QuestionMode::kAware};
  throw Error(ErrorCode::kInvalidArgument,
              "the question mode is aware, agnostic or both, not '" + std::string(text) + "'");
}

std::vector<std::string> split_methods(std::string_view list) {
  std::vector<std::string> methods;
  for (const std::string_view part : split(list, ';')) {
    bool is_first = true;
    for (const std::string_view piece : split(part, ',')) {
      if (is_further_option(piece)) {
        if (is_first) {
          throw Error(ErrorCode::kInvalidArgument,
                      "'" + std::string(piece) + "' is an option without a method: write METHOD:" + std::string(piece));
        }
        methods.back() += (methods.back().find(':') == std::string::npos ? ":" : ",") + std::string(piece);
      } else {
        methods.emplace_back(piece);
      }
      is_first = false;
    }
  }
  return methods;
}

std::vector<Cell> make_cells(const std::vector<std::string>& methods, const std::vector<std::string>& budgets) {
  if (methods.empty()) throw Error(ErrorCode::kInvalidArgument, "no method is given: name one, e.g. snapkv");
  std::vector<Cell> cells;
  bool any_evicts = false;
  const auto add = [&](const EvictionOptions& eviction, const std::optional<Budget>& budget) {
    Cell cell{eviction, budget, eviction.text(), budget ? budget->text() : ""};
    for (const Cell& other : cells) {
      if (cell.budget_text != other.budget_text || !is_same_method(eviction, other.eviction)) continue;
      const std::string at = budget ? " with the budget " + cell.budget_text : "";
      throw Error(ErrorCode::kInvalidArgument,
                  cell.method == other.method
                      ? "'" + cell.method + "'" + at + " is given twice: name it once"
                      : "'" + other.method + "' and '" + cell.method + "' are the same method: name one of them");
    }
    cells.push_back(std::move(cell));
  };
  for (const std::string& text : methods) {
    const EvictionOptions eviction = EvictionOptions::parse(text);
    if (!eviction.evicts()) {
      add(eviction, std::nullopt);
      continue;
    }
    any_evicts = true;
    if (budgets.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "the method '" + text + "' needs a budget: give some, e.g. 20%,10%,128");
    }
    for (const std::string& budget : budgets) add(eviction, Budget::parse(budget));
  }
  if (!budgets.empty() && !any_evicts) {
    throw Error(ErrorCode::kInvalidArgument, "budgets have no effect on the full cache: add a method, e.g. snapkv");
  }
  return cells;
}

Shard Shard::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const int index = whole_number(text.substr(0, slash)), count = whole_number(text.substr(slash + 1));
    if (index >= 1 && count >= 1 && index <= count) return {index - 1, count};
  }
  throw Error(ErrorCode::kInvalidArgument,
              "a shard is written i/n with i from 1 to n, e.g. 1/4, not '" + std::string(text) + "'");
}

std::string Shard::text() const { return std::to_string(index + 1) + "/" + std::to_string(count); }

}  // namespace winnow::eval
