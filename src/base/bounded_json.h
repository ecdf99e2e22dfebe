// Parses JSON that comes from outside, within limits that hold while it is read.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace winnow {

// Each limit is the most that a text may have.
struct JsonLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t levels = kNone;  // objects and lists around a value
  std::size_t names_of_object = kNone;
  std::size_t names = kNone;
  std::size_t scalars = kNone;  // values that are neither objects nor lists
  std::size_t parts = kNone;    // names, objects and lists together: each takes many times the memory of its text
};

// Says why parse_bounded_json refuses a text.
struct JsonRefusal {
  enum class Reason { kSyntax, kNumber, kLevels, kNamesOfObject, kNames, kScalars, kParts };

  Reason reason;
  std::size_t byte = 0;  // of an error in the syntax, from 1
  std::string what;      // the parser's sentence, for kSyntax and kNumber (a number that no double holds)
  std::string field;     // the last name of the outermost object, unless that object itself has the excess; else empty
};

// Returns the value of a text in UTF-8, in time proportional to n log n of its size. (nlohmann's own parsers take its
// square for lists of objects where they call back, and for the names of an ordered object.) If a name comes again, the
// last value counts, in the place of the first. Throws JsonRefusal. Json is nlohmann::json or nlohmann::ordered_json.
template <typename Json>
Json parse_bounded_json(std::string_view text, const JsonLimits& limits);

extern template nlohmann::json parse_bounded_json(std::string_view, const JsonLimits&);
extern template nlohmann::ordered_json parse_bounded_json(std::string_view, const JsonLimits&);

}  // namespace winnow
