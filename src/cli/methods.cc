// winnow methods: the methods that can cut the KV cache.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/text_output.h"
#include "cli/text_table.h"
#include "winnow/eviction.h"

namespace winnow::cli {
namespace {

// Returns the options that do not name a part, in the order of the table of options.
std::vector<OptionInfo> own_options(const EvictionOptions& parts) {
  const std::vector<std::string> used = parts.used_options();
  std::vector<OptionInfo> options;
  for (const OptionInfo& option : eviction_options()) {
    const bool is_part =
        option.name == "scorer" || option.name == "layers" || option.name == "heads" || option.name == "selector";
    if (!is_part && std::find(used.begin(), used.end(), option.name) != used.end()) options.push_back(option);
  }
  return options;
}

bool has_paper(const MethodInfo& method) { return !method.paper.empty() && method.paper != "-"; }

nlohmann::ordered_json method_json(const MethodInfo& method) {
  nlohmann::ordered_json json{{"name", method.name},
                              {"summary", method.summary},
                              {"paper", has_paper(method) ? method.paper : ""},
                              {"scorer", method.options.scorer},
                              {"layers", method.options.layers},
                              {"heads", method.options.heads},
                              {"selector", method.options.selector}};
  nlohmann::ordered_json defaults = nlohmann::ordered_json::object();
  for (const OptionInfo& option : own_options(method.options)) defaults[option.name] = method.options.get(option.name);
  json["options"] = defaults;
  json["evidence"] = method.options.evidence();
  json["cost"] = method.options.cost();
  return json;
}

std::string describe_all() {
  TextTable methods({{"method"}, {"what it keeps, and costs besides the prefill"}});
  for (const MethodInfo& method : eviction_methods()) {
    methods.row({method.name,
                 method.summary + (has_paper(method) ? "; " + method.paper : "") + "; costs " + method.options.cost()});
  }
  TextTable options({{"option"}, {"values and meaning"}});
  for (const OptionInfo& option : eviction_options()) {
    options.row({option.name, option.values + ": " + option.summary + " [" + option.used_by + "]"});
  }
  return "--kv-evict METHOD[:option=value,...]\n--kv-budget 512 | 20% | 5%bytes | 64MiB | kl=0.02\n\n" +
         methods.plain() + "\n" + options.plain() +
         "\n`winnow methods NAME` shows a method's parts and the options that it takes.\n";
}

std::string describe(const MethodInfo& method) {
  const EvictionOptions& parts = method.options;
  std::string text = wrap_text(method.name + ": " + method.summary, 80, 0) + "\n";
  if (has_paper(method)) text += wrap_text("paper: " + method.paper, 80, 0) + "\n";
  if (!parts.evicts()) return text;
  text += "\nscores tokens by       " + parts.scorer + "\nshares among layers    " + parts.layers +
          "\nshares among heads     " + parts.heads + "\nselects                " + parts.selector + "\n\n";
  const std::vector<std::string> evidence = parts.evidence();
  text += "costs besides the prefill\n  " + parts.cost() + "\n\nsaved or computed besides the entries\n";
  if (evidence.empty()) text += "  nothing\n";
  for (const std::string& phrase : evidence) text += wrap_text("  " + phrase, 80, 2) + "\n";
  text += "\n";
  TextTable options({{"option"}, {"default"}, {"values and meaning"}});
  for (const OptionInfo& option : own_options(parts)) {
    const std::string value = parts.get(option.name);
    options.row({option.name, value.empty() ? "(none)" : value, option.values + ": " + option.summary});
  }
  return text + options.plain() + "\nExample: --kv-evict " + method.name + " --kv-budget 20%\n";
}

constexpr const char* kMethodsExamples =
    "  winnow methods\n"
    "  winnow methods snapkv\n"
    "  winnow methods --json -\n";

}  // namespace

int methods_command(const Arguments& arguments) {
  std::string name;
  std::optional<std::string> json_path;
  CommandLine line("winnow methods", "[NAME] [flags]",
                   "Lists the eviction methods, which decide what the KV cache keeps, and their options; with NAME, "
                   "the parts and options of that method.",
                   kMethodsExamples);
  line.positional("NAME", name, "method to show");
  line.group("Output");
  line.text("--json", "FILE", json_path, "write the list as JSON; - for standard output");
  if (!line.parse(arguments)) return 0;

  const MethodInfo* method = name.empty() ? nullptr : value_of("winnow methods", [&] { return &find_method(name); });
  if (!json_path) {
    write_output(method != nullptr ? describe(*method) : describe_all());
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
