#include "eviction/options/option_table.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "base/nearest_name.h"
#include "base/numbers.h"
#include "eviction/options/registry.h"
#include "winnow/error.h"

namespace winnow {
namespace {

constexpr int kMaxInteger = 1 << 30;
constexpr const char* kEveryMethod = "every method";

template <auto Member>
bool set_text(EvictionOptions& options, std::string_view value) {
  options.*Member = std::string(value);
  return !value.empty();
}

template <auto Member>
std::string get_text(const EvictionOptions& options) {
  return options.*Member;
}

template <auto Member>
bool set_integer(EvictionOptions& options, std::string_view value) {
  const std::optional<int> number = parse_integer<int>(value);
  if (!number || *number < 0 || *number > kMaxInteger) return false;
  options.*Member = *number;
  return true;
}

template <auto Member>
std::string get_integer(const EvictionOptions& options) {
  return std::to_string(options.*Member);
}

bool set_fit(EvictionOptions& options, std::string_view value) {
  if (value != "none" && value != "values") return false;
  options.fit = value == "values" ? Fit::kValues : Fit::kNone;
  return true;
}

bool set_bits(EvictionOptions& options, std::string_view value) {
  const std::optional<Bits> bits = Bits::parse(value);
  if (bits) options.bits = *bits;
  return bits.has_value();
}

std::string get_bits(const EvictionOptions& options) { return options.bits.text(); }

std::string get_fit(const EvictionOptions& options) { return options.fit == Fit::kValues ? "values" : "none"; }

using O = EvictionOptions;

// Returns the options that every method has.
std::deque<OptionRow> common_rows() {
  return {
      {"scorer", "a scorer's name", "how a token is scored", kEveryMethod, set_text<&O::scorer>, get_text<&O::scorer>},
      {"layers", "a layer allocator's name", "how the total is shared among layers", kEveryMethod, set_text<&O::layers>,
       get_text<&O::layers>},
      {"heads", "a head allocator's name", "how a layer's budget is shared among heads", kEveryMethod,
       set_text<&O::heads>, get_text<&O::heads>},
      {"selector", "a selector's name", "which tokens stay, given how many (also: select)", kEveryMethod,
       set_text<&O::selector>, get_text<&O::selector>},
      {"window", "integer >= 0",
       "last tokens: always kept, and the rows of window scorers; half of the budget without the sinks where it does "
       "not fit",
       kEveryMethod, set_integer<&O::window>, get_integer<&O::window>},
      {"sinks", "integer >= 0", "first tokens: always kept", kEveryMethod, set_integer<&O::sinks>,
       get_integer<&O::sinks>},
      {"fit", "none | values", "values of what stays refitted, so that attention's output changes least", kEveryMethod,
       set_fit, get_fit},
      {"bits", "own | 8 | 4 | 3 | 8/4 | 8:PART,4 | by-budget",
       "what stays is stored in the cache's own types, in q8_0, in r4, in r3, keys and values apart, the best PART of "
       "it (0.3) in more bits "
       "than the others, or in what is best for a budget of this size",
       kEveryMethod, set_bits, get_bits},
  };
}

std::deque<OptionRow>& rows() {
  static std::deque<OptionRow> table = common_rows();
  return table;
}

OptionRow row_of(const Option& option) {
  const auto set = [name = option.name, fallback = option.fallback, read = option.read](EvictionOptions& options,
                                                                                        std::string_view value) {
    std::optional<std::string> text = read(value);
    if (!text) return false;
    if (*text == fallback) {
      options.values.erase(name);
    } else {
      options.values[name] = std::move(*text);
    }
    return true;
  };
  const auto get = [name = option.name, fallback = option.fallback](const EvictionOptions& options) {
    const auto found = options.values.find(name);
    return found != options.values.end() ? found->second : fallback;
  };
  return {.name = option.name,
          .values = option.values,
          .summary = option.summary,
          .used_by = {},
          .set = set,
          .get = get,
          .fallback = option.fallback};
}

}  // namespace

const std::deque<OptionRow>& option_rows() {
  register_built_in_parts();
  return rows();
}

void check_option(const Option& option, const std::string& part) {
  check_name("option", option.name);
  for (const OptionRow& row : rows()) {
    if (row.name != option.name) continue;
    if (row.values == option.values && row.summary == option.summary && row.fallback == option.fallback &&
        row.used_by != kEveryMethod) {
      continue;
    }
    throw Error(ErrorCode::kInvalidArgument, "the option '" + option.name + "' of " + part +
                                                 " is already declared differently, for " + row.used_by +
                                                 ": give it another name");
  }
}

void declare_option(const Option& option, const std::string& part) {
  const auto found =
      std::find_if(rows().begin(), rows().end(), [&](const OptionRow& row) { return row.name == option.name; });
  OptionRow& row = found != rows().end() ? *found : rows().emplace_back(row_of(option));
  // If layers and heads of one name read the option, it is listed as read by the method of that name.
  const std::string as_layers = "layers=" + part.substr(part.find('=') + 1);
  const std::size_t at = row.used_by.find(as_layers);
  if (part.starts_with("heads=") && at != std::string::npos) {
    row.used_by.replace(at, as_layers.size(), part.substr(part.find('=') + 1));
  } else {
    row.used_by += (row.used_by.empty() ? "" : ", ") + part;
  }
}

const OptionRow& find_option(std::string_view name) {
  if (name == "select") name = "selector";
  std::vector<std::string_view> names;
  for (const OptionRow& row : option_rows()) {
    if (row.name == name) return row;
    names.push_back(row.name);
  }
  throw Error(ErrorCode::kNotFound,
              "there is no option '" + std::string(name.substr(0, 64)) + "': " + name_advice(name, names));
}

std::vector<OptionInfo> eviction_options() {
  std::vector<OptionInfo> table;
  for (const OptionRow& row : option_rows()) table.push_back({row.name, row.values, row.summary, row.used_by});
  return table;
}

}  // namespace winnow
