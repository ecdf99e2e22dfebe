// JSON numbers between two bounds, as regular expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace winnow {

// A decimal number: sign * integer.fraction.
struct Decimal {
  bool is_negative = false;
  std::string integer = "0";  // without leading zeros
  std::string fraction;       // without zeros at the end

  // What JSON has, e.g. "-0.5", "1e3". Throws Error(kInvalidArgument) for a number beyond 1e400.
  static Decimal parse(const std::string& text);
  bool is_below(const Decimal& other) const;
};

struct NumberBounds {
  std::optional<Decimal> least, most;
  bool excludes_least = false, excludes_most = false;
};

// What numbers are multiples of: factor / 10^n_digits.
struct Step {
  std::uint32_t factor = 1;
  int n_digits = 0;

  // Nothing for a number of more than five digits between its zeros, or that is not above zero.
  static std::optional<Step> parse(const Decimal& number);
};

// Patterns of what lies between the bounds, of at most 16 digits before the point and after it, and no exponent; bounds
// of more than 15 digits after the point are moved inwards. Throw Error(kInvalidArgument) where nothing does.
std::string integer_pattern(const NumberBounds& bounds);
std::string number_pattern(const NumberBounds& bounds);

}  // namespace winnow
