// In how many bits what stays is stored: as text, and by the size of a budget.
#include <string>

#include "base/numbers.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

constexpr int kWidths[] = {8, 4, 3};

std::optional<int> width(std::string_view text) {
  for (const int bits : kWidths) {
    if (text == std::to_string(bits)) return bits;
  }
  return std::nullopt;
}

// What is best from which part of the prompt on; the last row holds for what is smaller.
struct Row {
  double from;
  Bits bits;
};

constexpr Bits all_in(int bits) { return {.rule = Bits::Rule::kGiven, .bits = bits}; }
constexpr Bits best_in(int first_bits, double part, int bits) {
  return {.rule = Bits::Rule::kGiven, .bits = bits, .first_bits = first_bits, .first_part = part};
}

// Of its bytes: chosen on three novels (docs/methods.md, auto).
constexpr Row kByBytes[] = {{0.30, all_in(8)},
                            {0.175, best_in(8, 0.3, 4)},
                            {0.13, best_in(8, 0.22, 4)},
                            {0.08, best_in(8, 0.15, 4)},
                            {0.0, all_in(4)}};
// Of its entries: their number is given, and bits are all that is left to choose.
constexpr Row kByEntries[] = {{0.15, all_in(8)}, {0.0, all_in(4)}};

}  // namespace

std::optional<Bits> Bits::parse(std::string_view text) {
  if (text == "own") return Bits{};
  if (text == "by-budget") return Bits{.rule = Rule::kByBudget};
  if (const std::optional<int> all = width(text)) return Bits{.rule = Rule::kGiven, .bits = *all};
  const std::size_t colon = text.find(':'), comma = text.find(',');
  if (colon == std::string_view::npos || comma == std::string_view::npos || comma < colon) return std::nullopt;
  const std::optional<int> first = width(text.substr(0, colon)), others = width(text.substr(comma + 1));
  const std::optional<double> part = parse_double(text.substr(colon + 1, comma - colon - 1));
  if (!first || !others || *first <= *others || !part || !(*part > 0 && *part < 1)) return std::nullopt;
  return Bits{.rule = Rule::kGiven, .bits = *others, .first_bits = *first, .first_part = *part};
}

std::string Bits::text() const {
  if (rule == Rule::kOwn) return "own";
  if (rule == Rule::kByBudget) return "by-budget";
  const std::string others = std::to_string(bits);
  if (first_bits == 0) return others;
  return std::to_string(first_bits) + ":" + format_number(first_part) + "," + others;
}

double Bits::finer_part(const Budget& budget) const {
  const Bits chosen = for_budget(budget);
  return rule == Rule::kByBudget && chosen.bits == 8 ? 1 : chosen.first_part;
}

Bits Bits::for_budget(const std::optional<Budget>& budget) const {
  if (rule != Rule::kByBudget) return *this;
  if (budget && budget->unit == Budget::Unit::kLoss) return best_in(8, finer_part(budget->most()), 4);
  const double part = budget && budget->is_relative() ? budget->amount : 0;
  const bool is_of_bytes = budget && budget->unit == Budget::Unit::kByteFraction;
  const Row* row = is_of_bytes ? kByBytes : kByEntries;
  while (part < row->from) ++row;
  return row->bits;
}

}  // namespace winnow
