// winnow: the command line tool. Finds the command and turns errors into messages and exit codes.

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/nearest_name.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/ranks.h"
#include "cli/text_output.h"
#include "mpi/mpi_link.h"
#include "winnow/instruction_set.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

// The file descriptor to which errors are written.
int error_output = STDERR_FILENO;

// Silences a rank that does not speak, except for errors.
void silence() {
  error_output = dup(STDERR_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

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
      "  winnow COMMAND --help   show the flags of a command\n"
      "  winnow --version        show the version\n\n"
      "Environment:\n"
      "  WINNOW_MODEL   default for -m: a model file or name\n"
      "  WINNOW_ISA     vector instruction set to use, e.g. AVX2\n"
      "  WINNOW_ARG_*   flag defaults: WINNOW_ARG_KV_BUDGET=10% is --kv-budget 10%,\n"
      "                 WINNOW_ARG_JINJA=1 is --jinja\n\n"
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
    write_output(std::string("winnow ") + kVersion + " (" + instruction_set() + ", " +
                 (editor.empty() ? "no line editing" : "line editing by " + editor) + ")\n");
    return 0;
  }
  if (name == "help" && !arguments.empty()) {
    name = arguments.front();
    arguments = {"--help"};
  }
  if (name == "--help" || name == "-h" || name == "help") {
    write_output(help());
    return 0;
  }
  const Command& command = find_command(name);
  if (ranks() != nullptr && !command.runs_on_ranks) {
    throw UsageError("`winnow " + name + "` does not share a model among ranks: start it without mpirun");
  }
  check_environment();
  return command.run(arguments);
}

int run(const Arguments& arguments) {
  if (mpi::launched_ranks() > 1) {
    if (mpi::launched_rank() > 0) silence();
    set_ranks(mpi::start());
    end_on_signals();
  }
  static_cast<void>(instruction_set());  // the library reads WINNOW_ISA: a wrong value is refused before any work
  const int exit_code = dispatch(arguments);
  if (ranks() != nullptr) mpi::finish();
  return exit_code;
}

// Reports an error and returns the exit code; with ranks it ends all of their programs.
int fail(const std::string& message, int exit_code) {
  const bool has_ranks = ranks() != nullptr;
  if (!has_ranks && mpi::launched_rank() > 0) return exit_code;  // MPI could not be started
  if (has_ranks) ranks()->fail(message);
  // Rank 0 reports an error that occurs on every rank. It also reports one of another rank, unless it is busy for long
  // or gone, so other ranks wait first.
  if (!speaks()) std::this_thread::sleep_for(std::chrono::seconds(5));
  const std::string text = "error: " + message + "\n";
  if (write(error_output, text.data(), text.size()) < 0) exit_code = 1;
  if (has_ranks) mpi::give_up(exit_code);
  return exit_code;
}

}  // namespace
}  // namespace winnow::cli

int main(int argc, char** argv) {
  // A reader that leaves early (`| head -1`) causes a failed write, which ends the work quietly.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return winnow::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
  } catch (const winnow::cli::UsageError& error) {
    return winnow::cli::fail(error.what() + winnow::cli::environment_note(error.what()), 2);
  } catch (const std::bad_alloc&) {
    return winnow::cli::fail("the machine has no memory left: use a smaller -c, -b or model, or --kv-evict", 1);
  } catch (const std::exception& error) {
    return winnow::cli::fail(error.what(), 1);
  }
}
