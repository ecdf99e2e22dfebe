#include "cli/commands.h"

#include <unistd.h>

#include <set>

#include "base/nearest_name.h"

namespace winnow::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Generate text from a prompt, or answer questions about a text.", run_command, true},
    {"chat", "Chat with a model in the terminal.", chat_command, true},
    {"serve", "Serve a model over the APIs of OpenAI, Anthropic and ollama.", serve_command, true},
    {"bench", "Measure speed and memory, in the format of llama-bench.", bench_command, true},
    {"eval", "Run benchmarks over lists of methods and budgets.", eval_command, true},
    {"report", "Turn the results of eval into pages, tables and plots.", report_command},
    {"analyze", "Measure what methods lose on a text, next to the papers' bounds.", analyze_command},
    {"calibrate", "Learn how to share a budget among a model's heads (LU-KV).", calibrate_command},
    {"info", "Show a model's dimensions and the memory that its KV cache needs.", info_command},
    {"inspect", "Write an HTML page that shows what methods keep of a text.", inspect_command},
    {"methods", "List the eviction methods and their options.", methods_command},
    {"completion", "Print a completion script for bash or zsh.", completion_command},
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
    for (const Flag& flag : command.flags()) {
      for (std::string& variable : flag.variables()) known.insert(std::move(variable));
    }
  }
  for (const std::string& name : given) {
    if (known.contains(name)) continue;
    throw UsageError("the environment variable " + name + " matches no flag" +
                     name_question(name, {known.begin(), known.end()}) + " Unset it, or see `winnow COMMAND --help`");
  }
}

}  // namespace winnow::cli
