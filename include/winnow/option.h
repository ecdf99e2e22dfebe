// Options of methods, each declared by the part that reads it: a part's options() lists its own, and score() and the
// like read them with EvictionOptions::integer, number and text_of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

// The declaration of an option.
struct Option {
  std::string name;
  std::string values;    // the values that it may have, for people: "integer >= 0", "mean | sum | max"
  std::string summary;   // a line for `winnow methods`
  std::string fallback;  // the value where none is given
  // Returns a value in its canonical text form, or nothing for a text that is not one of `values`.
  std::function<std::optional<std::string>(std::string_view)> read;
};

inline constexpr std::int64_t kMaxIntegerOption = std::int64_t{1} << 30;
inline constexpr double kMaxNumberOption = 1e9;  // scores and shares stay finite when multiplied with such a number

// Declares an option whose value is a whole number from min to max. Set max where work grows with the number.
Option integer_option(std::string name, std::int64_t min, std::int64_t max, std::int64_t fallback, std::string summary);

// Declares an option whose value is a number from min to max.
Option number_option(std::string name, double min, double max, double fallback, std::string summary);

// Declares an option whose value is one of `choices`.
Option choice_option(std::string name, const std::vector<std::string>& choices, std::string fallback,
                     std::string summary);

// Declares an option whose value is the name of a file. It has no fallback: the file must be given.
Option file_option(std::string name, std::string summary);

}  // namespace winnow
