// winnow methods: what the KV cache can be cut with.

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/text_table.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow::cli {
namespace {

std::string number_text(double value) {
  std::string text = fixed_text(value, 6);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string row_reduction_name(RowReduction rows) {
  return rows == RowReduction::kMean ? "mean" : rows == RowReduction::kSum ? "sum" : "max";
}

std::string pooling_name(Pooling pool) {
  return pool == Pooling::kNone ? "none" : pool == Pooling::kMax ? "max" : "avg";
}

// An option's value in the text form.
std::optional<std::string> option_value(const EvictionOptions& options, const std::string& name) {
  if (name == "scorer") return options.scorer;
  if (name == "layers") return options.layers;
  if (name == "heads") return options.heads;
  if (name == "select" || name == "selector") return options.selector;
  if (name == "window") return std::to_string(options.window);
  if (name == "sinks") return std::to_string(options.sinks);
  if (name == "rows") return row_reduction_name(options.rows);
  if (name == "pool") return pooling_name(options.pool);
  if (name == "kernel") return std::to_string(options.kernel);
  if (name == "order") return options.order == PoolOrder::kPoolThenGroup ? "pool-then-group" : "group-then-pool";
  if (name == "group") return options.group == GroupReduction::kMean ? "mean" : "max";
  if (name == "last-rows") return std::to_string(options.last_rows);
  if (name == "gamma") return number_text(options.gamma);
  if (name == "tau1") return number_text(options.tau1);
  if (name == "tau2") return number_text(options.tau2);
  if (name == "beta") return number_text(options.beta);
  if (name == "head-beta") return number_text(options.head_beta);
  if (name == "safeguard") return options.safeguard == Safeguard::kBlend ? "blend" : "minimum";
  if (name == "alpha") return number_text(options.alpha);
  if (name == "first-stage") return number_text(options.first_stage);
  if (name == "critical-eps") return number_text(options.critical_eps);
  if (name == "ea-eps") return number_text(options.ea_eps);
  if (name == "ea-future") return std::to_string(options.ea_future);
  if (name == "ea-skip") return std::to_string(options.ea_skip);
  if (name == "seed") return std::to_string(options.seed);
  if (name == "head-file") return options.head_file;
  if (name == "profile") return options.profile;
  return std::nullopt;
}

// Whether one of the method's parts reads the option: the text form refuses those that none reads.
bool takes_option(const MethodInfo& method, const std::string& name, const std::string& value) {
  try {
    EvictionOptions::parse(method.name + ":" + name + "=" + (value.empty() ? "file" : value));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_part(const std::string& option) {
  return option == "scorer" || option == "layers" || option == "heads" || option == "select" || option == "selector";
}

bool has_paper(const MethodInfo& method) { return !method.paper.empty() && method.paper != "-"; }

const MethodInfo& find_method(const std::string& name) {
  const std::string canonical = EvictionOptions::parse(name).method;
  for (const MethodInfo& method : eviction_methods()) {
    if (method.name == canonical) return method;
  }
  throw Error(ErrorCode::kInternal, "the method '" + canonical + "' is missing in the list of methods");
}

nlohmann::ordered_json method_json(const MethodInfo& method) {
  nlohmann::ordered_json json{{"name", method.name},
                              {"summary", method.summary},
                              {"paper", has_paper(method) ? method.paper : ""},
                              {"scorer", method.options.scorer},
                              {"layers", method.options.layers},
                              {"heads", method.options.heads},
                              {"selector", method.options.selector}};
  nlohmann::ordered_json defaults = nlohmann::ordered_json::object();
  for (const OptionInfo& option : eviction_options()) {
    const std::optional<std::string> value = option_value(method.options, option.name);
    if (value && !is_part(option.name) && takes_option(method, option.name, *value)) defaults[option.name] = *value;
  }
  json["options"] = defaults;
  return json;
}

std::string describe_all() {
  TextTable methods({{"method"}, {"what it keeps"}});
  for (const MethodInfo& method : eviction_methods()) {
    methods.row({method.name, method.summary + (has_paper(method) ? "; " + method.paper : "")});
  }
  TextTable options({{"option"}, {"values and meaning"}});
  for (const OptionInfo& option : eviction_options()) {
    options.row({option.name, option.values + ": " + option.summary + " [" + option.used_by + "]"});
  }
  return "--kv-evict METHOD[:option=value,...] --kv-budget 512 | 20% | 64MiB\n\n" + methods.plain() + "\n" +
         options.plain() + "\n`winnow methods NAME` shows a method's parts and the options that it takes.\n";
}

std::string describe(const MethodInfo& method) {
  const EvictionOptions& parts = method.options;
  std::string text = wrap_text(method.name + ": " + method.summary, 80, 0) + "\n";
  if (has_paper(method)) text += wrap_text("paper: " + method.paper, 80, 0) + "\n";
  if (!parts.evicts()) return text;
  text += "\nscores tokens by       " + parts.scorer + "\nshares among layers    " + parts.layers +
          "\nshares among heads     " + parts.heads + "\nselects                " + parts.selector + "\n\n";
  TextTable options({{"option"}, {"default"}, {"values and meaning"}});
  for (const OptionInfo& option : eviction_options()) {
    const std::optional<std::string> value = option_value(parts, option.name);
    if (!value || is_part(option.name) || !takes_option(method, option.name, *value)) continue;
    options.row({option.name, value->empty() ? "(none)" : *value, option.values + ": " + option.summary});
  }
  return text + options.plain() + "\nExample: --kv-evict " + method.name + " --kv-budget 20%\n";
}

constexpr const char* kExamples =
    "  winnow methods\n"
    "  winnow methods snapkv\n"
    "  winnow methods --json -\n";

}  // namespace

int methods_command(const Arguments& arguments) {
  std::string name;
  std::optional<std::string> json_path;
  CommandLine line(
      "winnow methods", "[NAME] [flags]",
      "Lists the methods that decide what the KV cache keeps, and their options; with a name, the parts of "
      "that method and the options that it takes.",
      kExamples);
  line.positional("NAME", name, "a method");
  line.group("Output");
  line.text("--json", "FILE", json_path, "write the list as JSON; - is the standard output");
  if (!line.parse(arguments)) return 0;

  const MethodInfo* method = name.empty() ? nullptr : &find_method(name);
  if (!json_path) {
    std::fputs((method != nullptr ? describe(*method) : describe_all()).c_str(), stdout);
    return 0;
  }
  nlohmann::ordered_json json;
  if (method != nullptr) {
    json = method_json(*method);
  } else {
    json = nlohmann::ordered_json::array();
    for (const MethodInfo& each : eviction_methods()) json.push_back(method_json(each));
  }
  OutputFile(*json_path).write(json.dump(2) + "\n");
  return 0;
}

}  // namespace winnow::cli
