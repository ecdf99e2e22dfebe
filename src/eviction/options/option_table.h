// The table of options, with the functions that read, check and print each. The options of every method come first,
// then those that the parts declare.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "winnow/eviction.h"
#include "winnow/option.h"

namespace winnow {

// A row of the table.
struct OptionRow {
  std::string name;
  std::string values;
  std::string summary;
  std::string used_by;
  // Sets the option. Returns false for a value that is not one of `values`.
  std::function<bool(EvictionOptions& options, std::string_view value)> set;
  // Returns the option's value in the text form.
  std::function<std::string(const EvictionOptions& options)> get;
  std::string fallback = {};  // default value of an option that a part declares
};

// Returns the whole table.
const std::deque<OptionRow>& option_rows();

// Returns the row of an option; `select` is `selector`. Throws Error(kNotFound) with the nearest name for any other.
const OptionRow& find_option(std::string_view name);

// Throws Error(kInvalidArgument) for an option that is declared differently already, or whose name has another form.
// `part` is the part that declares it: "snapkv", "layers=cake", ...
void check_option(const Option& option, const std::string& part);
// Adds the option to the table; if it is there already, adds the part to those that read it.
void declare_option(const Option& option, const std::string& part);

}  // namespace winnow
