#include <cmath>
#include <cstdlib>
#include <optional>

#include "eval/metrics/scores.h"

namespace winnow::eval {
namespace {

double share_equal(TextView answer, TextView truth) {
  const std::vector<Text> numbers = runs_of(answer, is_digit);
  if (numbers.empty()) return 0;
  std::size_t n_equal = 0;
  for (const Text& number : numbers) n_equal += number == truth ? 1 : 0;
  return static_cast<double>(n_equal) / static_cast<double>(numbers.size());
}

// Returns int(text), written without leading zeros; nullopt if the text is no integer.
std::optional<std::string> integer(TextView text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return {};
  for (const char32_t c : text) {
    if (!is_ascii_digit(c)) return {};
  }
  while (text.size() > 1 && text[0] == '0') text.remove_prefix(1);
  return (negative && text != U"0" ? "-" : "") + encode(text);
}

// Returns the first match of \d+\.\d+|\d+.
std::optional<double> first_decimal(TextView text) {
  std::size_t begin = 0;
  while (begin < text.size() && !is_digit(text[begin])) ++begin;
  if (begin == text.size()) return {};
  std::size_t end = begin;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
  }
  return std::strtod(encode(text.substr(begin, end - begin)).c_str(), nullptr);
}

double number_of_reference(const Turn& turn) {
  return turn.references.empty() ? std::nan("") : std::strtod(turn.references[0].c_str(), nullptr);
}

}  // namespace

double share_of_numbers(TextView answer, TextView truth) { return share_equal(answer, truth); }

double share_of_paragraphs(TextView answer, TextView truth) {
  for (const TextView word : {TextView(U"Paragraph "), TextView(U"段落")}) {
    const std::size_t at = truth.find(word);
    if (at == TextView::npos) continue;
    const std::vector<Text> numbers = runs_of(truth.substr(at + word.size()), is_digit);
    return numbers.empty() ? 0 : share_equal(answer, numbers[0]);
  }
  return 0;
}

double first_digits(const Turn& turn, TextView answer) {
  const std::vector<Text> numbers = runs_of(answer, is_ascii_digit);
  return !numbers.empty() && !turn.references.empty() && encode(numbers[0]) == turn.references[0] ? 1 : 0;
}

double last_integer(const Turn& turn, TextView answer) {
  Text spaced(answer);
  for (char32_t& c : spaced) {
    if (TextView(U"\n.`'\":").find(c) != TextView::npos) c = ' ';
  }
  const std::vector<Text> words = split(spaced);
  if (words.empty() || turn.references.empty()) return 0;
  const std::optional<std::string> number = integer(words.back());
  return number.has_value() && number == integer(decode(turn.references[0])) ? 1 : 0;
}

double first_number(const Turn& turn, TextView answer) {
  const std::optional<double> number = first_decimal(answer);
  return number.has_value() && *number == number_of_reference(turn) ? 1 : 0;
}

double first_number_whole(const Turn& turn, TextView answer) {
  const std::optional<double> number = first_decimal(answer);
  if (!number.has_value() || turn.references.empty()) return 0;
  const bool whole = integer(decode(turn.references[0])).has_value();
  return (whole ? std::trunc(*number) : *number) == number_of_reference(turn) ? 1 : 0;
}

double leading_numbers(const Turn& turn, TextView answer) {
  const std::vector<Text> numbers = runs_of(answer, is_ascii_digit);
  std::size_t n_right = 0;
  while (n_right < turn.references.size() && n_right < numbers.size() &&
         integer(numbers[n_right]) == integer(decode(turn.references[n_right]))) {
    ++n_right;
  }
  return turn.references.empty() ? 0 : static_cast<double>(n_right) / static_cast<double>(turn.references.size());
}

}  // namespace winnow::eval
