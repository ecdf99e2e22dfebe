// The number of bits in which kept entries are stored: as text, and by the size of a budget.
#include <span>
#include <string>

#include "base/numbers.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

constexpr int kKnownWidths[] = {8, 4, 3};

std::optional<int> width(std::string_view text) {
  for (const int bits : kKnownWidths) {
    if (text == std::to_string(bits)) return bits;
  }
  return std::nullopt;
}

// Parses "4", or keys and values separately: "8/4".
std::optional<BitWidths> widths(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::optional<int> keys = width(text.substr(0, slash));
  const std::optional<int> values = slash == std::string_view::npos ? keys : width(text.substr(slash + 1));
  if (!keys || !values) return std::nullopt;
  return BitWidths{.keys = *keys, .values = *values};
}

std::string text_of(const BitWidths& bits) {
  const std::string keys = std::to_string(bits.keys);
  return bits.keys == bits.values ? keys : keys + "/" + std::to_string(bits.values);
}

// The best bits for budgets from a part of the prompt on; the last row also applies below all others.
struct Row {
  double from;
  Bits bits;
};

constexpr BitWidths both(int bits) { return {.keys = bits, .values = bits}; }
constexpr Bits all_in(BitWidths bits) { return {.rule = Bits::Rule::kGiven, .all = bits}; }
constexpr Bits best_in(BitWidths high, double fraction, BitWidths others) {
  return {.rule = Bits::Rule::kGiven, .all = others, .high = high, .high_fraction = fraction};
}

// By a part of its bytes: chosen on three novels and on answers to questions about other documents (docs/methods.md,
// auto).
constexpr Row kByBytes[] = {{0.30, all_in(both(8))},
                            {0.175, best_in(both(8), 0.3, both(4))},
                            {0.09, best_in(both(8), 0.22, both(4))},
                            {0.075, best_in(both(8), 0.15, both(4))},
                            {0.025, best_in(both(4), 0.5, both(3))},
                            {0.0, all_in(both(3))}};
// The same for heads of at least kWideHead numbers: chosen on the same novels and documents, on two models with such
// heads (docs/methods.md, auto).
constexpr int kWideHead = 128;
constexpr Row kByBytesForWideHeads[] = {{0.30, all_in(both(8))},
                                        {0.175, best_in(both(8), 0.1, both(4))},
                                        {0.025, best_in(both(4), 0.5, both(3))},
                                        {0.0, all_in(both(3))}};
// By a part of its entries: their number is given, so that only the bits remain to be chosen.
constexpr Row kByEntries[] = {{0.15, all_in(both(8))}, {0.0, all_in(both(4))}};
// For cuts of a prompt that are tried for a loss: all of them store the coarser entries in the same type.
constexpr Row kForALoss[] = {{0.30, best_in(both(8), 1, both(4))},
                             {0.175, best_in(both(8), 0.3, both(4))},
                             {0.13, best_in(both(8), 0.22, both(4))},
                             {0.08, best_in(both(8), 0.15, both(4))},
                             {0.0, all_in(both(4))}};

const Bits& row_for(std::span<const Row> rows, double part) {
  std::size_t i = 0;
  while (part < rows[i].from) ++i;
  return rows[i].bits;
}

}  // namespace

std::optional<Bits> Bits::parse(std::string_view text) {
  if (text == "own") return Bits{};
  if (text == "by-budget") return Bits{.rule = Rule::kByBudget};
  if (const std::optional<BitWidths> bits = widths(text)) return all_in(*bits);
  const std::size_t colon = text.find(':'), comma = text.find(',');
  if (colon == std::string_view::npos || comma == std::string_view::npos || comma < colon) return std::nullopt;
  const std::optional<BitWidths> high = widths(text.substr(0, colon)), others = widths(text.substr(comma + 1));
  const std::optional<double> part = parse_double(text.substr(colon + 1, comma - colon - 1));
  if (!high || !others || !part || !(*part > 0 && *part < 1)) return std::nullopt;
  if (*high == *others || high->keys < others->keys || high->values < others->values) return std::nullopt;
  return best_in(*high, *part, *others);
}

std::string Bits::text() const {
  if (rule == Rule::kOwn) return "own";
  if (rule == Rule::kByBudget) return "by-budget";
  if (!is_mixed()) return text_of(all);
  return text_of(high) + ":" + format_number(high_fraction) + "," + text_of(all);
}

double Bits::high_fraction_for(const Budget& budget) const {
  return rule == Rule::kByBudget ? row_for(kForALoss, budget.amount).high_fraction : high_fraction;
}

Bits Bits::for_budget(const std::optional<Budget>& budget, int head_dim) const {
  if (rule != Rule::kByBudget) return *this;
  if (budget && budget->unit == Budget::Unit::kLoss) return row_for(kForALoss, budget->most().amount);
  const double part = budget && budget->is_relative() ? budget->amount : 0;
  const bool is_of_bytes = budget && budget->unit == Budget::Unit::kByteFraction;
  if (!is_of_bytes) return row_for(kByEntries, part);
  return head_dim < kWideHead ? row_for(kByBytes, part) : row_for(kByBytesForWideHeads, part);
}

}  // namespace winnow
