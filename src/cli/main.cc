// winnow: the command line tool. Finds the command and turns errors into messages and exit codes.

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/nearest_name.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/line_editor.h"
#include "winnow/instruction_set.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

std::string help() {
  std::string text =
      "usage: winnow COMMAND [flags]\n\n"
      "Runs GGUF language models on long prompts with a KV cache that keeps only what\n"
      "attention needs.\n\n"
      "Commands:\n";
  for (const Command& command : commands()) {
    std::string name = std::string("  ") + command.name;
    name.resize(14, ' ');
    text += name + command.summary + "\n";
  }
  text +=
      "\n"
      "  winnow COMMAND --help   the flags of a command\n"
      "  winnow --version        the version\n\n"
      "Environment:\n"
      "  WINNOW_MODEL   model file for commands without -m\n"
      "  WINNOW_ISA     vector instructions to compute with, e.g. AVX2\n"
      "  WINNOW_ARG_*   flags that are not given: WINNOW_ARG_KV_BUDGET=10% is\n"
      "                 --kv-budget 10%, WINNOW_ARG_JINJA=1 is --jinja\n\n"
      "Examples:\n"
      "  winnow run -p \"The capital of France is\" -n 16\n"
      "  winnow run -f book.txt -q \"Who is the narrator?\" --kv-evict snapkv \\\n"
      "      --kv-budget 20%\n"
      "  winnow methods snapkv\n";
  return text;
}

const Command& find_command(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  if (name.starts_with("-")) {
    throw UsageError("flags come after a command, as in `winnow run " + name + "`; `winnow --help` lists the commands");
  }
  throw UsageError("there is no command '" + name + "'" + name_question(name, names) +
                   " `winnow --help` lists the commands");
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) {
    std::fputs(help().c_str(), stderr);
    return 2;
  }
  std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--version") {
    const std::string editor = line_editor_name();
    std::printf("winnow %s (%s, %s)\n", kVersion, instruction_set().c_str(),
                editor.empty() ? "no line editing" : ("line editing by " + editor).c_str());
    return 0;
  }
  if (name == "help" && !arguments.empty()) {
    name = arguments.front();
    arguments = {"--help"};
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(help().c_str(), stdout);
    return 0;
  }
  const Command& command = find_command(name);
  check_environment();
  return command.run(arguments);
}

int run(const Arguments& arguments) {
  static_cast<void>(instruction_set());  // the library reads WINNOW_ISA: a wrong one is refused before any work
  return dispatch(arguments);
}

}  // namespace
}  // namespace winnow::cli

int main(int argc, char** argv) {
  // A reader that leaves early (`| head -1`) is a failed write, which ends the work quietly.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return winnow::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (const winnow::cli::UsageError& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fputs("error: the machine has no memory left: use a smaller -c, -b or model, or --kv-evict\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
