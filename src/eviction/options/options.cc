// Eviction options as text, and the check of their combination.
#include <algorithm>
#include <string>

#include "base/numbers.h"
#include "eviction/cut/cut.h"
#include "eviction/options/option_table.h"
#include "eviction/options/registry.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

// Returns the names of the options that the parts in use read.
std::vector<std::string> options_in_use(const EvictionOptions& options) {
  std::vector<std::string> names = {"scorer", "layers", "heads", "selector", "window", "sinks", "fit", "bits"};
  const std::vector<std::string> more = options_of_parts(options);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

bool uses(const EvictionOptions& options, std::string_view name) {
  if (!options.evicts()) return false;
  const std::vector<std::string> names = options_of_parts(options);
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kInvalidArgument, why); }

}  // namespace

int least_window(const EvictionOptions& options) {
  const Parts parts = find_parts(options);
  return std::max(parts.scorer->least_window(options), parts.layers->least_window(options));
}

const std::string& EvictionOptions::text_of(std::string_view option) const {
  if (const auto found = values.find(option); found != values.end()) return found->second;
  return find_option(option).fallback;
}

std::int64_t EvictionOptions::integer(std::string_view option) const {
  return parse_integer<std::int64_t>(get(option)).value_or(0);
}

double EvictionOptions::number(std::string_view option) const { return parse_double(get(option)).value_or(0); }

EvictionOptions EvictionOptions::parse(std::string_view text) {
  constexpr std::string_view kAutoFast = "auto:fast";
  std::string respelled;
  if (text == kAutoFast || text.starts_with(std::string(kAutoFast) + ",")) {
    respelled = "auto-fast" + std::string(text.substr(kAutoFast.size()));
    if (const std::size_t comma = respelled.find(','); comma != std::string::npos) respelled[comma] = ':';
    text = respelled;
  }
  const std::size_t colon = text.find(':');
  EvictionOptions options = find_method(text.substr(0, colon)).options;
  std::vector<std::string> given;
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) {
    refuse("nothing follows the colon in '" + std::string(text) + "': give METHOD or METHOD:option=value,...");
  }
  while (!rest.empty()) {
    // Text after a comma that is no option belongs to the value before it: bits=8:0.3,4.
    std::size_t comma = rest.find(',');
    while (comma != std::string_view::npos) {
      const std::string_view after = rest.substr(comma + 1);
      const std::size_t next = after.find(',');
      if (after.empty() || next == 0 || after.substr(0, next).find('=') != std::string_view::npos) break;
      comma = next == std::string_view::npos ? next : comma + 1 + next;
    }
    const std::string_view item = rest.substr(0, comma);
    const bool is_last = comma == std::string_view::npos;
    rest = is_last ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = item.find('=');
    if (item.empty() || equals == std::string_view::npos || (!is_last && rest.empty())) {
      refuse("the method " + std::string(text.substr(0, 256)) + " is not of the form METHOD:option=value,...");
    }
    const std::string& name = find_option(item.substr(0, equals)).name;
    if (std::find(given.begin(), given.end(), name) != given.end()) {
      refuse("the option '" + name + "' is given twice");
    }
    options.set(name, item.substr(equals + 1));
    given.push_back(name);
  }
  if (!options.evicts()) {
    if (!given.empty()) refuse("the method 'full' keeps everything and takes no options: name another method");
    return options;
  }
  const std::vector<std::string> used = options_in_use(options);
  for (const std::string& name : given) {
    if (std::find(used.begin(), used.end(), name) != used.end()) continue;
    refuse("no part of this method reads the option '" + name + "' (scorer " + options.scorer + ", layers " +
           options.layers + ", heads " + options.heads + ", selector " + options.selector + "; it is for " +
           find_option(name).used_by + "): leave it out");
  }
  options.validate();
  options.load_files();
  return options;
}

std::string EvictionOptions::get(std::string_view option) const { return find_option(option).get(*this); }

std::vector<std::string> EvictionOptions::used_options() const {
  std::vector<std::string> names;
  if (!evicts()) return names;
  for (const std::string& name : options_in_use(*this)) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> EvictionOptions::evidence() const {
  std::vector<std::string> phrases;
  if (!evicts()) return phrases;
  const EvidenceNeeds needs = Cut::needs(*this);
  if (needs.window_rows == 1) {
    phrases.emplace_back("the last query row of every layer");
  } else if (needs.window_rows > 1) {
    phrases.push_back("the last " + std::to_string(needs.window_rows) + " query rows of every layer");
  }
  if (needs.all_queries) phrases.emplace_back("every query row of one layer at a time, with the rows' log-sum-exps");
  if (needs.query_moments) phrases.emplace_back("running mean and covariance of the queries in every query head");
  if (needs.output_projection) phrases.emplace_back("the output projection of one layer at a time in float32");
  if (needs.reconstruction_pass) {
    phrases.emplace_back("a second pass over the prompt: about twice the prefill and its hidden states");
  }
  if (needs.late_repeat) {
    phrases.emplace_back("a second pass over the prompt behind the first sixth of the layers");
  }
  if (needs.reference_rows) phrases.emplace_back("192 query rows of every layer, and their attention's output");
  if (needs.earlier_scores) phrases.emplace_back("the scores that entries had in earlier cuts, 2 bytes each");
  return phrases;
}

std::string EvictionOptions::cost() const {
  if (!evicts()) return "nothing";
  const EvidenceNeeds needs = Cut::needs(*this);
  if (needs.repeats_prompt()) return "the prompt again";
  if (needs.all_queries) return "its attention again";
  if (needs.query_moments) return "all rows' moments";
  if (needs.output_projection) return "projected values";
  if (needs.window_rows > 0 || needs.reference_rows) return "a few rows' attention";
  return "nothing";
}

void EvictionOptions::set(std::string_view option, std::string_view value) {
  const OptionRow& row = find_option(option);
  if (!row.set(*this, value)) {
    refuse("the option '" + row.name + "' is '" + std::string(value.substr(0, 64)) + "': give " + row.values);
  }
  if (row.name == "head-file") importance.reset();
  if (row.name == "profile") utility_profile.reset();
}

bool EvictionOptions::reads_head_file() const { return uses(*this, "head-file"); }
bool EvictionOptions::reads_profile() const { return uses(*this, "profile"); }

void EvictionOptions::validate() const {
  if (!evicts()) return;
  const Parts parts = find_parts(*this);
  for (const auto& [name, value] : values) static_cast<void>(find_option(name));
  // Values that were set in the fields directly have not gone through set().
  for (const OptionRow& row : option_rows()) {
    const std::string value = row.get(*this);
    EvictionOptions copy;
    if (!value.empty() && !row.set(copy, value)) {
      refuse("the option '" + row.name + "' is '" + value + "': give " + row.values);
    }
  }
  if (window < parts.layers->least_window(*this)) {
    refuse("layers=" + layers + " takes the variance over the window's rows: raise the window to " +
           std::to_string(parts.layers->least_window(*this)) + " or more");
  }
  if (window < parts.scorer->least_window(*this)) {
    refuse("the scorer '" + scorer + "' reads the window's rows, but the window is " + std::to_string(window) +
           ": raise it to " + std::to_string(parts.scorer->least_window(*this)) + " or more");
  }
  if (parts.selector->needs_attention() && !parts.scorer->is_attention()) {
    refuse("selector=" + selector + " multiplies attention with value norms, and the scores of '" + scorer +
           "' are not attention: use h2o, tova, snapkv, cake, lava, kvzip or rms as the scorer, or selector=top-k");
  }
  if (parts.layers->is_global() != parts.heads->is_global()) {
    refuse("layers=global ranks all heads of the model at once and goes with heads=global only: set both or neither");
  }
  if (parts.layers->needs_non_negative_scores() && !parts.scorer->is_non_negative()) {
    refuse("layers=" + layers + " takes the entropy of the scores, and those of '" + scorer +
           "' can be negative: use another scorer or other layers");
  }
  if (reads_head_file() && text_of("head-file").empty() && importance == nullptr) {
    refuse((heads == "uniform" ? layers : heads) + " needs a file of head importances: name it with head-file=FILE");
  }
  if (reads_profile() && utility_profile != nullptr && !utility_profile->scorer.empty() &&
      utility_profile->scorer != scorer_text()) {
    refuse("the profile was calibrated for the scorer " + utility_profile->scorer + ", not " + scorer_text() +
           ": use that scorer or calibrate again");
  }
}

std::string EvictionOptions::text() const {
  std::string result = method;
  if (!evicts()) return result;
  const EvictionOptions& preset = find_method(method).options;
  const std::vector<std::string> used = options_in_use(*this);
  char separator = ':';
  for (const OptionRow& row : option_rows()) {
    const std::string value = row.get(*this);
    if (value == row.get(preset) || std::find(used.begin(), used.end(), row.name) == used.end()) continue;
    result.push_back(separator);
    result.append(row.name).append("=").append(value);
    separator = ',';
  }
  return result;
}

std::string EvictionOptions::scorer_text() const {
  std::vector<std::string> names = scorer_options(scorer);
  names.insert(names.begin(), {"window", "sinks"});
  std::string result = scorer;
  char separator = ':';
  for (const std::string& name : names) {
    std::string value = find_option(name).get(*this);
    // The budget decides how the prompt is repeated, and a profile is for all budgets.
    if (name == "repeat" && (value == "late" || value == "whole")) value = find_option(name).get({});
    result.push_back(separator);
    result.append(name).append("=").append(value);
    separator = ',';
  }
  return result;
}

void EvictionOptions::load_files() {
  if (!evicts()) return;
  if (reads_head_file() && importance == nullptr) {
    importance = std::make_shared<const HeadImportance>(HeadImportance::load(text_of("head-file")));
  }
  if (reads_profile() && utility_profile == nullptr && !text_of("profile").empty()) {
    utility_profile = std::make_shared<const UtilityProfile>(UtilityProfile::load(text_of("profile")));
  }
}

}  // namespace winnow
