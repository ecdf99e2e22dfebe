// The commands of the tool. Each takes the arguments after its name and returns the exit code; it throws UsageError (2)
// or winnow::Error (1) otherwise.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"

namespace winnow::cli {

using Arguments = std::vector<std::string>;

int run_command(const Arguments& arguments);
int chat_command(const Arguments& arguments);
int serve_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int eval_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int analyze_command(const Arguments& arguments);
int calibrate_command(const Arguments& arguments);
int info_command(const Arguments& arguments);
int inspect_command(const Arguments& arguments);
int methods_command(const Arguments& arguments);
int completion_command(const Arguments& arguments);

struct Command {
  const char* name;
  const char* summary;
  int (*run)(const Arguments&);
  bool runs_on_ranks = false;  // a model may be shared by several processes (cli/ranks.h)

  std::vector<Flag> flags() const;
};

// Returns the commands in the order of the help.
std::span<const Command> commands();

// Throws UsageError for a variable WINNOW_ARG_* that belongs to no flag of any command: it would have no effect.
void check_environment();

}  // namespace winnow::cli
