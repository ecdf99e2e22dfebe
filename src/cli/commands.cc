#include "cli/commands.h"

#include <unistd.h>

#include <set>

#include "base/nearest_name.h"

namespace winnow::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Generate text after a prompt, or answer questions about a text.", run_command, true},
    {"chat", "Talk with a model in the terminal.", chat_command, true},
    {"serve", "Serve a model to OpenAI's clients.", serve_command, true},
    {"bench", "Measure speed and memory, in llama-bench's rows.", bench_command, true},
    {"eval", "Run benchmarks with many methods and budgets.", eval_command, true},
    {"report", "Draw the results of eval: pages, tables, plots.", report_command},
    {"analyze", "Measure what methods lose on a text, beside the papers' bounds.", analyze_command},
    {"calibrate", "Learn for a model which heads need how much of a budget (LU-KV).", calibrate_command},
    {"info", "Show a model, and what its KV cache costs on this machine.", info_command},
    {"inspect", "Show what methods keep of a text, on an HTML page.", inspect_command},
    {"methods", "List the methods that decide what the KV cache keeps.", methods_command},
    {"completion", "Print a script that completes commands and flags in a shell.", completion_command},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

std::vector<Flag> Command::flags() const {
  return CommandLine::flags_of([this] { run({}); });
}

void check_environment() {
  std::vector<std::string> given;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("WINNOW_ARG_")) given.emplace_back(text.substr(0, text.find('=')));
  }
  if (given.empty()) return;
  std::set<std::string> known;
  for (const Command& command : kCommands) {
    for (const Flag& flag : command.flags()) known.insert(flag.variable());
  }
  for (const std::string& name : given) {
    if (known.contains(name)) continue;
    throw UsageError("the environment's " + name + " stands for no flag" +
                     name_question(name, {known.begin(), known.end()}) + " Unset it, or see `winnow COMMAND --help`");
  }
}

}  // namespace winnow::cli
