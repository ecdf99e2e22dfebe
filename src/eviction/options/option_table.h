// The table of options: how each is read, checked and printed. What every method has stands first, then what the parts
// declare.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "winnow/eviction.h"
#include "winnow/option.h"

namespace winnow {

struct OptionRow {
  std::string name;
  std::string values;
  std::string summary;
  std::string used_by;
  // Returns false for a value that is not one of `values`.
  std::function<bool(EvictionOptions& options, std::string_view value)> set;
  std::function<std::string(const EvictionOptions& options)> get;
  std::string fallback = {};  // of an option that a part declares
};

const std::deque<OptionRow>& option_rows();

// Throws Error(kNotFound) with the nearest name. `select` is `selector`.
const OptionRow& find_option(std::string_view name);

// Throws Error(kInvalidArgument) for an option that is declared otherwise already, or whose name cannot be one. `part`
// is who declares it: "snapkv", "layers=cake", ...
void check_option(const Option& option, const std::string& part);
// Adds the option, or the part to those that read it.
void declare_option(const Option& option, const std::string& part);

}  // namespace winnow
