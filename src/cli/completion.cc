// winnow completion: scripts for bash and zsh, made from the flags that the commands declare.
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/text_output.h"
#include "winnow/eviction.h"

namespace winnow::cli {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
  return text;
}

// Returns the names of a flag as they are typed; none for an argument.
std::vector<std::string> names_of(const Flag& flag) {
  return flag.long_name().empty() ? std::vector<std::string>() : split(flag.names, ',');
}

enum class Values { kNone, kAny, kFiles, kFolders, kMethods };

Values values_of(const Flag& flag) {
  if (flag.value.empty()) return Values::kNone;
  if (flag.value.starts_with("FILE")) return Values::kFiles;
  if (flag.value.starts_with("FOLDER")) return Values::kFolders;
  return flag.value.starts_with("METHOD") ? Values::kMethods : Values::kAny;
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

// Returns the words of which a command's argument is one; "" if it has no such argument.
std::string argument_names(const std::string& command) {
  if (command == "methods") return method_names();
  return command == "completion" ? "bash zsh" : "";
}

std::string bash_script() {
  std::string script =
      "# winnow's commands and flags, for bash: source <(winnow completion bash)\n"
      "_winnow() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W '" +
      command_names() +
      " --help --version' -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n";
  for (const Command& command : commands()) {
    std::vector<std::string> all = {"--help"}, of_values[static_cast<int>(Values::kMethods) + 1];
    for (const Flag& flag : command.flags()) {
      for (const std::string& name : names_of(flag)) {
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
    add(Values::kFiles, "COMPREPLY=($(compgen -f -- \"$current\"))");
    add(Values::kFolders, "COMPREPLY=($(compgen -d -- \"$current\"))");
    add(Values::kMethods, "COMPREPLY=($(compgen -W '" + method_names() + "' -- \"$current\"))");
    add(Values::kAny, ":");
    script += "      esac\n      words='" + joined(all) + "'\n";
    if (const std::string arguments = argument_names(command.name); !arguments.empty()) {
      script += "      [[ $current == -* ]] || words='" + arguments + "'\n";
    }
    script += "      ;;\n";
  }
  script +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
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
  for (const std::string& name : names_of(flag)) {
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
    if (const std::string arguments = argument_names(command.name); !arguments.empty()) {
      script += " \\\n        '1:name:(" + arguments + ")'";
    }
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
