// winnow completion: scripts for bash and zsh, made from the flags that the commands declare.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/text_output.h"
#include "winnow/evaluation.h"
#include "winnow/eviction.h"

namespace winnow::cli {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
  return text;
}

enum class Values { kNone, kAny, kFiles, kFolders, kMethods };

// Returns what a flag takes, by the word for its value in the help.
Values values_of(const Flag& flag) {
  constexpr std::pair<std::string_view, Values> kWords[] = {{"FILE", Values::kFiles},
                                                            {"[BENCHMARK=]PATH", Values::kFiles},
                                                            {"FOLDER", Values::kFolders},
                                                            {"METHOD", Values::kMethods},
                                                            {"LIST", Values::kMethods}};
  if (flag.value.empty()) return Values::kNone;
  for (const auto& [word, values] : kWords) {
    if (flag.value.starts_with(word)) return values;
  }
  return Values::kAny;
}

std::string command_names() {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  return joined(names);
}

std::string method_names() {
  std::vector<std::string> names;
  for (const MethodInfo& method : eviction_methods()) names.push_back(method.name);
  return joined(names);
}

std::string benchmark_words() {
  std::vector<std::string> names;
  for (const BenchmarkInfo& benchmark : evaluation_benchmarks()) names.push_back(benchmark.name);
  return joined(names);
}

// The arguments that a command takes besides flags: words of a list, or folders.
struct CommandArguments {
  std::string words;
  bool are_folders = false;
  bool are_several = false;
};

CommandArguments arguments_of(const std::string& command) {
  if (command == "methods") return {.words = method_names()};
  if (command == "completion") return {.words = "bash zsh"};
  if (command == "eval") return {.words = benchmark_words(), .are_several = true};
  return {.are_folders = command == "report", .are_several = command == "report"};
}

// Returns a command of bash that offers what `compgen` writes, a line for each, so that names may contain spaces.
std::string offer(const std::string& flags) {
  return "mapfile -t COMPREPLY < <(compgen " + flags + " -- \"$current\")";
}

std::string bash_script() {
  std::string script =
      "# winnow's commands and flags, for bash: source <(winnow completion bash)\n"
      "_winnow() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    " +
      offer("-W '" + command_names() + " --help --version'") +
      "\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands()) {
    std::vector<std::string> all = {"--help"}, of_values[static_cast<int>(Values::kMethods) + 1];
    for (const Flag& flag : command.flags()) {
      for (const std::string& name : flag.typed_names()) {
        all.push_back(name);
        of_values[static_cast<int>(values_of(flag))].push_back(name);
      }
    }
    script += "    " + std::string(command.name) + ")\n      case $before in\n";
    const auto add = [&](Values values, const std::string& action) {
      std::string pattern;
      for (const std::string& name : of_values[static_cast<int>(values)])
        pattern += (pattern.empty() ? "" : "|") + name;
      if (!pattern.empty()) script += "        " + pattern + ") " + action + "; return ;;\n";
    };
    add(Values::kFiles, offer("-f"));
    add(Values::kFolders, offer("-d"));
    add(Values::kMethods, offer("-W '" + method_names() + "'"));
    add(Values::kAny, ":");
    script += "      esac\n      words='" + joined(all) + "'\n";
    const CommandArguments arguments = arguments_of(command.name);
    if (!arguments.words.empty()) script += "      [[ $current == -* ]] || words='" + arguments.words + "'\n";
    if (arguments.are_folders) script += "      [[ $current == -* ]] || { " + offer("-d") + "; return; }\n";
    script += "      ;;\n";
  }
  script +=
      "  esac\n"
      "  " +
      offer("-W \"$words\"") +
      "\n"
      "}\n"
      "complete -o filenames -F _winnow winnow\n";
  return script;
}

// Quotes text for a shell's single quotes and zsh's _arguments, where brackets and colons have a meaning.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? std::string(" ") : c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted;
}

std::string zsh_flag(const Flag& flag) {
  std::string values;
  switch (values_of(flag)) {
    case Values::kNone:
      break;
    case Values::kAny:
      values = ":" + zsh_text(flag.value) + ": ";
      break;
    case Values::kFiles:
      values = ":" + zsh_text(flag.value) + ":_files";
      break;
    case Values::kFolders:
      values = ":" + zsh_text(flag.value) + ":_files -/";
      break;
    case Values::kMethods:
      values = ":" + zsh_text(flag.value) + ":(" + method_names() + ")";
      break;
  }
  std::string lines;
  for (const std::string& name : flag.typed_names()) {
    lines += " \\\n        '" + name + "[" + zsh_text(flag.help) + "]" + values + "'";
  }
  return lines;
}

std::string zsh_script() {
  std::string script =
      "#compdef winnow\n"
      "# winnow's commands and flags, for zsh: save it as _winnow in a folder of $fpath.\n"
      "_winnow() {\n"
      "  local -a commands=(\n";
  for (const Command& command : commands()) {
    script += "    '" + std::string(command.name) + ":" + zsh_text(command.summary) + "'\n";
  }
  script +=
      "  )\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $command in\n";
  for (const Command& command : commands()) {
    script += "    " + std::string(command.name) + ")\n      _arguments '--help[the flags]'";
    for (const Flag& flag : command.flags()) script += zsh_flag(flag);
    const CommandArguments arguments = arguments_of(command.name);
    const std::string place = arguments.are_several ? "*" : "1";
    if (!arguments.words.empty()) script += " \\\n        '" + place + ":name:(" + arguments.words + ")'";
    if (arguments.are_folders) script += " \\\n        '" + place + ":folder:_files -/'";
    script += "\n      ;;\n";
  }
  return script +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _winnow ]]; then _winnow \"$@\"; else compdef _winnow winnow; fi\n";
}

}  // namespace

int completion_command(const Arguments& arguments) {
  std::string shell;
  CommandLine line("winnow completion", "SHELL",
                   "Prints a script for shell completion of winnow's commands, flags, methods and files.",
                   "  source <(winnow completion bash)\n"
                   "  winnow completion zsh > ~/.zsh/completions/_winnow\n");
  line.positional("SHELL", shell, "name of the shell: bash or zsh");
  if (!line.parse(arguments)) return 0;
  if (shell != "bash" && shell != "zsh") {
    throw UsageError(shell.empty() ? "which shell? `winnow completion bash` or `winnow completion zsh`"
                                   : "there is no script for '" + shell + "': use bash or zsh");
  }
  write_output(shell == "bash" ? bash_script() : zsh_script());
  return 0;
}

}  // namespace winnow::cli
