// Regular expressions for JSON numbers between two bounds.
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

  // Parses a JSON number, e.g. "-0.5", "1e3". Throws Error(kInvalidArgument) for a number beyond 1e400.
  static Decimal parse(const std::string& text);
  bool is_below(const Decimal& other) const;
};

struct Bound {
  Decimal number;
  bool is_excluded = false;
};

struct NumberBounds {
  std::optional<Bound> least, most;
};

// A number that others are multiples of: factor / 10^n_digits.
struct Step {
  std::uint32_t factor = 1;
  int n_digits = 0;

  // Returns nullopt if the number is not above zero, has more than five digits between its zeros, or needs n_digits
  // beyond -16 to 16.
  static std::optional<Step> parse(const Decimal& number);
};

// Both return a pattern for the numbers between the bounds, with at most 16 digits before the point and 16 after it,
// and no exponent. Bounds with more than 15 digits after the point are moved inwards. Both throw
// Error(kInvalidArgument) if no number lies between the bounds.
std::string integer_pattern(const NumberBounds& bounds);
std::string number_pattern(const NumberBounds& bounds);

}  // namespace winnow
