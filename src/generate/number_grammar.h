// JSON numbers between two bounds, in GBNF.
#pragma once

#include <optional>
#include <string>

namespace winnow {

// A decimal number: sign * integer.fraction.
struct Decimal {
  bool is_negative = false;
  std::string integer = "0";  // without leading zeros
  std::string fraction;       // without zeros at the end

  // What JSON has, e.g. "-0.5", "1e3". Throws Error(kInvalidArgument) for a number beyond 1e15 or finer than 1e-15.
  static Decimal parse(const std::string& text);
};

struct NumberBounds {
  std::optional<Decimal> least, most;
  bool excludes_least = false, excludes_most = false;
};

// Expressions for what lies between the bounds, of at most 16 digits before the point and after it, and no exponent.
// Throw Error(kInvalidArgument) where nothing does.
std::string integer_grammar(const NumberBounds& bounds);
std::string number_grammar(const NumberBounds& bounds);

}  // namespace winnow
