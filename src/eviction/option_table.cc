#include "eviction/option_table.h"

#include <algorithm>
#include <vector>

#include "base/nearest_name.h"
#include "eviction/numbers.h"
#include "winnow/error.h"

namespace winnow {
namespace {

template <typename Value>
struct Choice {
  std::string_view name;
  Value value;
};

constexpr Choice<RowReduction> kRows[] = {
    {"mean", RowReduction::kMean}, {"sum", RowReduction::kSum}, {"max", RowReduction::kMax}};
constexpr Choice<Pooling> kPools[] = {{"none", Pooling::kNone}, {"max", Pooling::kMax}, {"avg", Pooling::kAverage}};
constexpr Choice<PoolOrder> kOrders[] = {{"pool-then-group", PoolOrder::kPoolThenGroup},
                                         {"group-then-pool", PoolOrder::kGroupThenPool}};
constexpr Choice<GroupReduction> kGroups[] = {{"mean", GroupReduction::kMean}, {"max", GroupReduction::kMax}};
constexpr Choice<Safeguard> kSafeguards[] = {{"blend", Safeguard::kBlend}, {"minimum", Safeguard::kMinimum}};

constexpr Choice<Fit> kFits[] = {{"none", Fit::kNone}, {"values", Fit::kValues}};

constexpr int kMaxInteger = 1 << 30;
// The cost of pooling grows with its width, that of expected attention with its positions.
constexpr int kMaxKernel = 1023, kMaxFuture = 65536;
// A score or share times a larger one is no number any more, as is a preference to the power of more than ten.
constexpr double kMaxNumber = 1e9, kMinTau = 0.1;

template <auto Member>
bool set_text(EvictionOptions& options, std::string_view value) {
  options.*Member = std::string(value);
  return !value.empty();
}

template <auto Member>
std::string get_text(const EvictionOptions& options) {
  return options.*Member;
}

template <auto Member, int Min, int Max = kMaxInteger>
bool set_integer(EvictionOptions& options, std::string_view value) {
  const std::optional<int> number = parse_integer<int>(value);
  if (!number || *number < Min || *number > Max) return false;
  options.*Member = *number;
  return true;
}

template <auto Member>
std::string get_integer(const EvictionOptions& options) {
  return std::to_string(options.*Member);
}

enum class Range { kNotNegative, kTau, kUnit, kAtLeastOne };

template <auto Member, Range Allowed>
bool set_number(EvictionOptions& options, std::string_view value) {
  const std::optional<double> number = parse_double(value);
  if (!number || *number > kMaxNumber) return false;
  const bool is_in_range = Allowed == Range::kNotNegative  ? *number >= 0
                           : Allowed == Range::kTau        ? *number >= kMinTau
                           : Allowed == Range::kAtLeastOne ? *number >= 1
                                                           : *number >= 0 && *number <= 1;
  if (is_in_range) options.*Member = *number;
  return is_in_range;
}

template <auto Member>
std::string get_number(const EvictionOptions& options) {
  return format_double(options.*Member);
}

template <auto Member, const auto& Choices>
bool set_choice(EvictionOptions& options, std::string_view value) {
  for (const auto& choice : Choices) {
    if (choice.name != value) continue;
    options.*Member = choice.value;
    return true;
  }
  return false;
}

template <auto Member, const auto& Choices>
std::string get_choice(const EvictionOptions& options) {
  for (const auto& choice : Choices) {
    if (choice.value == options.*Member) return std::string(choice.name);
  }
  return {};
}

bool set_kernel(EvictionOptions& options, std::string_view value) {
  EvictionOptions changed = options;
  if (!set_integer<&EvictionOptions::kernel, 1, kMaxKernel>(changed, value) || changed.kernel % 2 == 0) return false;
  options.kernel = changed.kernel;
  return true;
}

bool set_seed(EvictionOptions& options, std::string_view value) {
  const std::optional<std::uint64_t> seed = parse_integer<std::uint64_t>(value);
  if (seed) options.seed = *seed;
  return seed.has_value();
}

template <auto Name, auto Loaded>
bool set_file(EvictionOptions& options, std::string_view value) {
  (options.*Loaded).reset();
  return set_text<Name>(options, value);
}

using O = EvictionOptions;

constexpr OptionRow kOptions[] = {
    {"scorer", "a scorer's name", "how a token is scored", "every method", set_text<&O::scorer>, get_text<&O::scorer>},
    {"layers", "a layer allocator's name", "how the total is shared among layers", "every method", set_text<&O::layers>,
     get_text<&O::layers>},
    {"heads", "a head allocator's name", "how a layer's budget is shared among heads", "every method",
     set_text<&O::heads>, get_text<&O::heads>},
    {"selector", "top-k | critical", "which tokens stay, given how many (also: select)", "every method",
     set_text<&O::selector>, get_text<&O::selector>},
    {"window", "integer >= 0",
     "last tokens: always kept, and the rows of window scorers; half of the budget beside the sinks where it does not "
     "fit",
     "every method", set_integer<&O::window, 0>, get_integer<&O::window>},
    {"sinks", "integer >= 0", "first tokens: always kept", "every method", set_integer<&O::sinks, 0>,
     get_integer<&O::sinks>},
    {"rows", "mean | sum | max", "reduction over the window's rows", "snapkv vatp lava", set_choice<&O::rows, kRows>,
     get_choice<&O::rows, kRows>},
    {"pool", "none | max | avg", "pooling along the tokens", "snapkv cake vatp lava", set_choice<&O::pool, kPools>,
     get_choice<&O::pool, kPools>},
    {"kernel", "odd integer, 1 to 1023", "width of the pooling", "snapkv cake vatp lava", set_kernel,
     get_integer<&O::kernel>},
    {"order", "pool-then-group | group-then-pool", "which comes first", "snapkv cake vatp lava",
     set_choice<&O::order, kOrders>, get_choice<&O::order, kOrders>},
    {"group", "mean | max", "reduction over the query heads of a KV head", "snapkv cake vatp lava",
     set_choice<&O::group, kGroups>, get_choice<&O::group, kGroups>},
    {"last-rows", "integer >= 0", "last query rows that count, 0: all", "h2o", set_integer<&O::last_rows, 0>,
     get_integer<&O::last_rows>},
    {"gamma", "number, 0 to 1e9", "weight of the variance", "cake", set_number<&O::gamma, Range::kNotNegative>,
     get_number<&O::gamma>},
    {"tau1", "number, 0.1 to 1e9", "exponent 1/tau1 of the dispersion", "layers=cake",
     set_number<&O::tau1, Range::kTau>, get_number<&O::tau1>},
    {"tau2", "number, 0.1 to 1e9", "exponent 1/tau2 of the shift", "layers=cake", set_number<&O::tau2, Range::kTau>,
     get_number<&O::tau2>},
    {"beta", "number, 1 to 1e9", "the last layer gets 1/beta of the average", "layers=pyramid",
     set_number<&O::beta, Range::kAtLeastOne>, get_number<&O::beta>},
    {"head-beta", "number, 1 to 1e9", "1/head-beta of the total goes by importance", "headkv",
     set_number<&O::head_beta, Range::kAtLeastOne>, get_number<&O::head_beta>},
    {"floor", "integer >= 0", "best entries of a head that stay whatever others score", "layers=global",
     set_integer<&O::floor, 0>, get_integer<&O::floor>},
    {"safeguard", "blend | minimum", "how flat heads are protected", "heads=ada",
     set_choice<&O::safeguard, kSafeguards>, get_choice<&O::safeguard, kSafeguards>},
    {"alpha", "number in [0, 1]", "strength of the safeguard", "heads=ada", set_number<&O::alpha, Range::kUnit>,
     get_number<&O::alpha>},
    {"first-stage", "number in [0, 1]", "part chosen by attention alone", "selector=critical",
     set_number<&O::first_stage, Range::kUnit>, get_number<&O::first_stage>},
    {"critical-eps", "number, 0 to 1e9", "added to the scores before the product", "selector=critical",
     set_number<&O::critical_eps, Range::kNotNegative>, get_number<&O::critical_eps>},
    {"ea-eps", "number, 0 to 1e9", "added to the expected attention", "expected-attention",
     set_number<&O::ea_eps, Range::kNotNegative>, get_number<&O::ea_eps>},
    {"ea-future", "integer, 1 to 65536", "next positions that the rotation is averaged over", "expected-attention",
     set_integer<&O::ea_future, 1, kMaxFuture>, get_integer<&O::ea_future>},
    {"ea-skip", "integer >= 0", "first queries and keys left out", "expected-attention", set_integer<&O::ea_skip, 0>,
     get_integer<&O::ea_skip>},
    {"fit", "none | values", "values of what stays refitted, so that attention's output changes least", "every method",
     set_choice<&O::fit, kFits>, get_choice<&O::fit, kFits>},
    {"seed", "integer >= 0", "seed of the noise", "random", set_seed, get_integer<&O::seed>},
    {"head-file", "a file", "head importances, JSON or a line for each layer", "headkv, duo-attention",
     set_file<&O::head_file, &O::importance>, get_text<&O::head_file>},
    {"profile", "a file", "JSON of a calibrated profile", "lu-kv", set_file<&O::profile, &O::utility_profile>,
     get_text<&O::profile>},
};

}  // namespace

std::span<const OptionRow> option_rows() { return kOptions; }

const OptionRow& find_option(std::string_view name) {
  if (name == "select") name = "selector";
  for (const OptionRow& row : kOptions) {
    if (row.name == name) return row;
  }
  std::vector<std::string_view> names;
  for (const OptionRow& row : kOptions) names.push_back(row.name);
  throw Error(ErrorCode::kNotFound,
              "there is no option '" + std::string(name.substr(0, 64)) + "': " + name_advice(name, names));
}

const std::vector<OptionInfo>& eviction_options() {
  static const std::vector<OptionInfo> table = [] {
    std::vector<OptionInfo> rows;
    for (const OptionRow& row : kOptions) {
      rows.push_back(
          {std::string(row.name), std::string(row.values), std::string(row.summary), std::string(row.used_by)});
    }
    return rows;
  }();
  return table;
}

}  // namespace winnow
