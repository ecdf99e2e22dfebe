// The commands of the tool. Each takes the arguments after its name and returns the exit code; it throws UsageError (2)
// or winnow::Error (1) otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

}  // namespace winnow::cli
