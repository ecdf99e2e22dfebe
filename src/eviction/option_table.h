// The table of options: how each is read, checked and printed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "winnow/eviction.h"

namespace winnow {

struct OptionRow {
  std::string_view name;
  std::string_view values;
  std::string_view summary;
  std::string_view used_by;
  // Returns false for a value that is not one of `values`.
  bool (*set)(EvictionOptions& options, std::string_view value);
  std::string (*get)(const EvictionOptions& options);
};

std::span<const OptionRow> option_rows();

// Throws Error(kNotFound) with the nearest name. `select` is `selector`.
const OptionRow& find_option(std::string_view name);

}  // namespace winnow
