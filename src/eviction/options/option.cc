#include "winnow/option.h"

#include <algorithm>

#include "base/numbers.h"

namespace winnow {
Option integer_option(std::string name, std::int64_t min, std::int64_t max, std::int64_t fallback,
                      std::string summary) {
  const auto read = [min, max](std::string_view text) -> std::optional<std::string> {
    const std::optional<std::int64_t> number = parse_integer<std::int64_t>(text);
    if (!number || *number < min || *number > max) return std::nullopt;
    return std::to_string(*number);
  };
  return {.name = std::move(name),
          .values = max == kMaxIntegerOption ? "integer >= " + std::to_string(min)
                                             : "integer, " + std::to_string(min) + " to " + std::to_string(max),
          .summary = std::move(summary),
          .fallback = std::to_string(fallback),
          .read = read};
}

Option number_option(std::string name, double min, double max, double fallback, std::string summary) {
  const auto read = [min, max](std::string_view text) -> std::optional<std::string> {
    const std::optional<double> number = parse_double(text);
    if (!number || *number < min || *number > max) return std::nullopt;
    return format_number(*number);
  };
  const std::string most = max == kMaxNumberOption ? "1e9" : format_number(max);
  return {.name = std::move(name),
          .values = min == 0 && max == 1 ? "number in [0, 1]" : "number, " + format_number(min) + " to " + most,
          .summary = std::move(summary),
          .fallback = format_number(fallback),
          .read = read};
}

Option choice_option(std::string name, const std::vector<std::string>& choices, std::string fallback,
                     std::string summary) {
  std::string values;
  for (const std::string& choice : choices) values += (values.empty() ? "" : " | ") + choice;
  const auto read = [choices](std::string_view text) -> std::optional<std::string> {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) return std::nullopt;
    return std::string(text);
  };
  return {.name = std::move(name),
          .values = std::move(values),
          .summary = std::move(summary),
          .fallback = std::move(fallback),
          .read = read};
}

Option file_option(std::string name, std::string summary) {
  const auto read = [](std::string_view text) {
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
  };
  return {.name = std::move(name), .values = "a file", .summary = std::move(summary), .fallback = "", .read = read};
}

}  // namespace winnow
