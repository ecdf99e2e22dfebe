// An option of a method, declared by the part that reads it: a part's options() lists its own, and score() and the like
// read them with EvictionOptions::integer, number and text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"

namespace WINNOW_API winnow {

struct Option {
  std::string name;
  std::string values;    // what may stand there: "integer >= 0", "mean | sum | max"
  std::string summary;   // a line for `winnow methods`
  std::string fallback;  // the value where none is given
  // The value in its one text form; nothing for what is not one of `values`.
  std::function<std::optional<std::string>(std::string_view)> read;
};

inline constexpr std::int64_t kMaxIntegerOption = std::int64_t{1} << 30;
inline constexpr double kMaxNumberOption = 1e9;  // a score or share times a larger one is no number any more

// A whole number from min to max, which is to be set where work grows with the number.
Option integer_option(std::string name, std::int64_t min, std::int64_t max, std::int64_t fallback, std::string summary);

// A number from min to max.
Option number_option(std::string name, double min, double max, double fallback, std::string summary);

// One of `choices`.
Option choice_option(std::string name, const std::vector<std::string>& choices, std::string fallback,
                     std::string summary);

// The name of a file, which has to be given.
Option file_option(std::string name, std::string summary);

}  // namespace winnow
