#include "schema/number_pattern.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "winnow/error.h"

namespace winnow {
namespace {

constexpr std::size_t kMostDigits = 16;
const std::string kMostInteger(kMostDigits, '9');

// Alternatives; there are none if nothing fits.
using Choices = std::vector<std::string>;

std::string joined(const Choices& choices) {
  std::string text;
  for (const std::string& choice : choices) text += (&choice == &choices.front() ? "" : "|") + choice;
  return choices.size() > 1 ? "(?:" + text + ")" : text;
}

void add(Choices& to, const Choices& more) { to.insert(to.end(), more.begin(), more.end()); }

std::string digit(char first, char last) {
  return first == last ? std::string(1, first) : std::string("[") + first + "-" + last + "]";
}

std::string digits(std::size_t least, std::size_t most) {
  if (most == 0) return "";
  return "[0-9]{" + std::to_string(least) + "," + std::to_string(most) + "}";
}

bool is_below(const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

// Returns `number` plus one.
std::string successor(std::string number) {
  std::size_t i = number.size();
  for (; i > 0 && number[i - 1] == '9'; --i) number[i - 1] = '0';
  if (i == 0) return "1" + number;
  ++number[i - 1];
  return number;
}

// Returns `number`, which is not 0, minus one.
std::string predecessor(std::string number) {
  std::size_t i = number.size();
  for (; i > 0 && number[i - 1] == '0'; --i) number[i - 1] = '9';
  if (i > 0) --number[i - 1];
  const std::size_t leading = number.find_first_not_of('0');
  return leading == std::string::npos ? "0" : number.substr(leading);
}

// Returns patterns of the n-digit numbers from `least` to `most`. A bound is null if the digits before already meet it.
Choices same_length(const char* least, const char* most, std::size_t n) {
  if (n == 0) return {""};
  if (least == nullptr && most == nullptr) return {digits(n, n)};
  const auto behind = [&](const char* text) { return text == nullptr ? nullptr : text + 1; };
  const char first = least == nullptr ? '0' : *least, last = most == nullptr ? '9' : *most;
  Choices choices;
  const auto with = [&](const std::string& head, const char* new_least, const char* new_most) {
    choices.push_back(head + joined(same_length(new_least, new_most, n - 1)));
  };
  if (first == last) {
    with(digit(first, last), behind(least), behind(most));
    return choices;
  }
  const char between_first = least == nullptr ? first : static_cast<char>(first + 1);
  const char between_last = most == nullptr ? last : static_cast<char>(last - 1);
  if (least != nullptr) with(digit(first, first), behind(least), nullptr);
  if (between_first <= between_last) with(digit(between_first, between_last), nullptr, nullptr);
  if (most != nullptr) with(digit(last, last), nullptr, behind(most));
  return choices;
}

Choices natural(const std::string& least, const std::string& most) {
  Choices choices;
  for (std::size_t n = least.size(); n <= most.size() && !is_below(most, least); ++n) {
    const std::string lowest = n == 1 ? "0" : "1" + std::string(n - 1, '0'), highest(n, '9');
    const std::string from = n == least.size() ? least : lowest, to = n == most.size() ? most : highest;
    add(choices, same_length(from.data(), to.data(), n));
  }
  return choices;
}

struct Magnitudes {
  std::string least_integer = "0", least_fraction;
  bool excludes_least = false;
  std::string most_integer = kMostInteger;
  std::optional<std::string> most_fraction;  // nullopt: any
  bool excludes_most = false;
};

// Returns patterns of what may follow the digits after a point so far. `least` and `most` are the rest of a bound's
// digits if all digits so far are the bound's, and null if the bound is met already. With `has_digits` the number may
// end here.
Choices fraction(const std::string* least, const std::string* most, const Magnitudes& of, bool has_digits,
                 std::size_t n_left) {
  if (least == nullptr && most == nullptr) {
    return n_left == 0 && !has_digits ? Choices{} : Choices{digits(has_digits ? 0 : 1, n_left)};
  }
  if (least == nullptr && most->empty()) {  // only zeros may follow
    if (of.excludes_most) return {};
    return {"0{" + std::string(has_digits ? "0," : "1,") + std::to_string(n_left) + "}"};
  }
  Choices choices;
  const bool is_least = least != nullptr && least->empty(), is_most = most != nullptr && most->empty();
  const bool may_end = has_digits && (least == nullptr || (is_least && !of.excludes_least)) &&
                       (most == nullptr || !is_most || !of.excludes_most);
  if (may_end) choices.emplace_back();
  if (n_left == 0) return choices;
  if (is_least && most == nullptr && !of.excludes_least) return fraction(nullptr, nullptr, of, has_digits, n_left);
  const char first = least == nullptr || is_least ? '0' : least->front();
  const char last = most == nullptr ? '9' : is_most ? '0' : most->front();
  const std::string least_rest = least == nullptr || is_least ? "" : least->substr(1);
  const std::string most_rest = most == nullptr || is_most ? "" : most->substr(1);
  const auto with = [&](char from, char to, const std::string* new_least, const std::string* new_most) {
    const Choices rest = fraction(new_least, new_most, of, true, n_left - 1);
    if (from <= to && !rest.empty()) choices.push_back(digit(from, to) + joined(rest));
  };
  const std::string* const next_least = least == nullptr ? nullptr : &least_rest;
  const std::string* const next_most = most == nullptr ? nullptr : &most_rest;
  if (first == last && next_least != nullptr && next_most != nullptr) {
    with(first, first, next_least, next_most);
    return choices;
  }
  if (next_least != nullptr) with(first, first, next_least, nullptr);
  with(next_least == nullptr ? first : static_cast<char>(first + 1),
       next_most == nullptr ? last : static_cast<char>(last - 1), nullptr, nullptr);
  if (next_most != nullptr) with(last, last, nullptr, next_most);
  return choices;
}

// Returns the pattern of the integers with the fractions that fit, with and without a point, or "" if nothing fits.
std::string with_fraction(const std::string& integer, const std::string* least, const std::string* most,
                          const Magnitudes& of) {
  const Choices behind = fraction(least, most, of, false, kMostDigits);
  const bool is_whole = (least == nullptr || (least->empty() && !of.excludes_least)) &&
                        (most == nullptr || !most->empty() || !of.excludes_most);
  if (behind.empty()) return is_whole ? integer : "";
  const std::string point = "\\." + joined(behind);
  return integer + (is_whole ? "(?:" + point + ")?" : point);
}

Choices magnitudes(const Magnitudes& of) {
  Choices choices;
  const auto add_some = [&](const Choices& integers, const std::string* least, const std::string* most) {
    if (integers.empty()) return;
    if (std::string text = with_fraction(joined(integers), least, most, of); !text.empty()) {
      choices.push_back(std::move(text));
    }
  };
  const std::string* const most = of.most_fraction ? &*of.most_fraction : nullptr;
  if (is_below(of.most_integer, of.least_integer)) return choices;
  if (of.least_integer == of.most_integer) {
    const bool is_none = most != nullptr && (*most < of.least_fraction ||
                                             (*most == of.least_fraction && (of.excludes_least || of.excludes_most)));
    if (!is_none) add_some({of.least_integer}, &of.least_fraction, most);
    return choices;
  }
  add_some({of.least_integer}, &of.least_fraction, nullptr);
  const std::string last = most == nullptr ? of.most_integer : predecessor(of.most_integer);
  add_some(natural(successor(of.least_integer), last), nullptr, nullptr);
  if (most != nullptr) add_some({of.most_integer}, nullptr, most);
  return choices;
}

std::string any_of(const Choices& choices) {
  if (choices.empty()) throw Error(ErrorCode::kInvalidArgument, "no number lies between its bounds");
  return "^(?:" + joined(choices) + ")$";
}

bool is_zero(const Decimal& number) { return number.integer == "0" && number.fraction.empty(); }

// The most digits after the point that a bound may have. A finer bound is moved inwards.
constexpr std::size_t kMostFraction = kMostDigits - 1;

// Rounds a bound that has more digits up to the least number with so few.
void round_up(std::string& integer, std::string& fraction) {
  const std::string digits = successor(integer + fraction.substr(0, kMostFraction));
  integer = digits.substr(0, digits.size() - kMostFraction);
  fraction = digits.substr(digits.size() - kMostFraction);
  while (fraction.ends_with('0')) fraction.pop_back();
}

// Returns the magnitudes on one side of zero that the bounds leave, or nullopt if there are none; `near` is the bound
// that is nearer to zero there.
std::optional<Magnitudes> side(const std::optional<Bound>& near, const std::optional<Bound>& far, bool is_negative) {
  Magnitudes of;
  if (far) {
    const Decimal& number = far->number;
    if (is_zero(number) ? is_negative : number.is_negative != is_negative) return std::nullopt;
    if (number.integer.size() <= kMostDigits) {
      of.most_integer = number.integer;
      of.most_fraction = number.fraction.substr(0, kMostFraction);
      of.excludes_most = far->is_excluded && number.fraction.size() <= kMostFraction;
    }
  }
  if (near && (is_zero(near->number) || near->number.is_negative == is_negative)) {
    const Decimal& number = near->number;
    if (number.integer.size() > kMostDigits) return std::nullopt;
    of.least_integer = number.integer;
    of.least_fraction = number.fraction;
    of.excludes_least = near->is_excluded && number.fraction.size() <= kMostFraction;
    if (number.fraction.size() > kMostFraction) round_up(of.least_integer, of.least_fraction);
  }
  return of;
}

std::optional<Magnitudes> negative_side(const NumberBounds& bounds) { return side(bounds.most, bounds.least, true); }

std::optional<Magnitudes> positive_side(const NumberBounds& bounds) { return side(bounds.least, bounds.most, false); }

}  // namespace

Decimal Decimal::parse(const std::string& text) {
  Decimal number;
  std::string_view rest = text;
  number.is_negative = rest.starts_with('-');
  if (number.is_negative) rest.remove_prefix(1);
  const std::size_t exponent_at = std::min(rest.find_first_of("eE"), rest.size());
  const long exponent =
      exponent_at < rest.size() ? std::strtol(std::string(rest.substr(exponent_at + 1)).c_str(), nullptr, 10) : 0;
  rest = rest.substr(0, exponent_at);
  const std::size_t point = std::min(rest.find('.'), rest.size());
  std::string digits(rest.substr(0, point));
  long n_whole = static_cast<long>(digits.size()) + exponent;  // digits before the point
  if (point < rest.size()) digits += rest.substr(point + 1);
  constexpr long kMostExponent = 400;
  if (n_whole > kMostExponent || n_whole < -kMostExponent || digits.size() > kMostExponent) {
    throw Error(ErrorCode::kInvalidArgument, "numbers must be from -1e400 to 1e400");
  }
  if (n_whole < 0) digits.insert(0, static_cast<std::size_t>(-n_whole), '0');
  n_whole = std::max(n_whole, 0L);
  digits.resize(std::max(digits.size(), static_cast<std::size_t>(n_whole)), '0');
  number.integer = digits.substr(0, static_cast<std::size_t>(n_whole));
  number.integer.erase(0, std::min(number.integer.find_first_not_of('0'), number.integer.size()));
  if (number.integer.empty()) number.integer = "0";
  number.fraction = digits.substr(static_cast<std::size_t>(n_whole));
  while (number.fraction.ends_with('0')) number.fraction.pop_back();
  if (is_zero(number)) number.is_negative = false;
  return number;
}

bool Decimal::is_below(const Decimal& other) const {
  if (is_negative != other.is_negative) return is_negative;
  const Decimal &low = is_negative ? other : *this, &high = is_negative ? *this : other;
  if (low.integer != high.integer) return winnow::is_below(low.integer, high.integer);
  return low.fraction < high.fraction;
}

std::optional<Step> Step::parse(const Decimal& number) {
  Step step{.n_digits = static_cast<int>(number.fraction.size())};
  std::string digits = number.integer + number.fraction;
  for (; step.n_digits <= 0 && digits.size() > 1 && digits.ends_with('0'); --step.n_digits) digits.pop_back();
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  constexpr std::size_t kMost = 5;
  constexpr int kMostPlaces = 16;
  if (digits.empty() || digits.size() > kMost || number.is_negative || std::abs(step.n_digits) > kMostPlaces) {
    return std::nullopt;
  }
  step.factor = static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, 10));
  return step;
}

std::string integer_pattern(const NumberBounds& bounds) {
  Choices choices;
  const auto add_side = [&](const std::optional<Magnitudes>& of, const char* sign, bool has_zero) {
    if (!of) return;
    const bool rounds_up = !of->least_fraction.empty() || of->excludes_least;
    std::string least = rounds_up ? successor(of->least_integer) : of->least_integer, most = of->most_integer;
    if (of->most_fraction && of->most_fraction->empty() && of->excludes_most) {
      if (most == "0") return;
      most = predecessor(most);
    }
    if (!has_zero && least == "0") least = "1";
    const Choices numbers = natural(least, most);
    if (!numbers.empty()) choices.push_back(sign + joined(numbers));
  };
  add_side(negative_side(bounds), "-", false);
  add_side(positive_side(bounds), "", true);
  return any_of(choices);
}

std::string number_pattern(const NumberBounds& bounds) {
  Choices choices;
  if (const auto of = negative_side(bounds)) {
    if (const Choices some = magnitudes(*of); !some.empty()) choices.push_back("-" + joined(some));
  }
  if (const auto of = positive_side(bounds)) {
    add(choices, magnitudes(*of));
  }
  return any_of(choices);
}

}  // namespace winnow
