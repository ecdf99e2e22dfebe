// Flags of a command: CLI11 with help that fits 80 columns, and errors that are sentences.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/error.h"

namespace winnow::cli {

// A mistake in the command line, shown as `error: ...` with exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One flag, or one argument, of a command.
struct Flag {
  std::string group;
  std::string names;  // "-n,--predict", or the name of an argument
  std::string value;  // the word for the value; empty: it takes none
  std::string help;

  // Returns the names as they are typed, "-n" and "--predict"; none for an argument.
  std::vector<std::string> typed_names() const;
  // Returns the environment variables that are looked at if the flag is not given, one for each long name:
  // "WINNOW_ARG_PREDICT". None for an argument.
  std::vector<std::string> variables() const;
};

// A parser with a help flag. `examples` is printed at the end of the help, each line unchanged.
class CommandLine {
 public:
  CommandLine(const std::string& command, const std::string& arguments, const std::string& summary,
              const std::string& examples);

  // Starts a group of the help.
  void group(const std::string& title) { group_ = title; }

  // Add flags. `names` is as in CLI11 ("-n,--predict"); `value` is the word for the value in the help. The last of
  // repeated flags counts, as llama.cpp's users expect.
  CLI::Option* text(const std::string& names, const std::string& value, std::string& target, const std::string& help);
  CLI::Option* text(const std::string& names, const std::string& value, std::optional<std::string>& target,
                    const std::string& help);
  CLI::Option* integer(const std::string& names, int& target, int lowest, const std::string& help);
  CLI::Option* integer(const std::string& names, int& target, int lowest, int highest, const std::string& help);
  CLI::Option* integer(const std::string& names, std::optional<int>& target, int lowest, const std::string& help);
  CLI::Option* integer(const std::string& names, std::int64_t& target, std::int64_t lowest, std::int64_t highest,
                       const std::string& help);
  CLI::Option* number(const std::string& names, float& target, double lowest, double highest, const std::string& help);
  CLI::Option* flag(const std::string& names, bool& target, const std::string& help);
  // Add flags that may be repeated and take several values, separated by commas or `separator` ('\0': one value each).
  // Given values replace the default.
  CLI::Option* integers(const std::string& names, std::vector<int>& target, int lowest, const std::string& help,
                        int highest = std::numeric_limits<int>::max());
  CLI::Option* texts(const std::string& names, const std::string& value, char separator,
                     std::vector<std::string>& target, const std::string& help);
  CLI::Option* positional(const std::string& name, std::string& target, const std::string& help);

  // Sets what an argument that is not a flag's is refused with: how to write the command's arguments.
  void refuse_arguments(const std::string& advice) { advice_ = advice; }

  // Has the environment's value of a flag ignored if `is_contradicted` returns true for the flags that are given: what
  // is typed takes precedence over a default that it excludes.
  void yields(const std::string& name, std::function<bool()> is_contradicted);
  // Does so for two flags that exclude each other.
  void exclude(const std::string& one, const std::string& other);

  // Parses the arguments; flags that are not given are taken from the environment (Flag::variables). Returns false if
  // help was asked for (and printed). Throws UsageError.
  bool parse(std::vector<std::string> arguments);

  // Returns the flags of the command line that `command` parses; while it runs, parse() only lists them and returns
  // false.
  static std::vector<Flag> flags_of(const std::function<void()>& command);

 private:
  std::string help() const;

  CLI::App app_;
  std::string command_, arguments_, summary_, examples_, group_ = "Options", advice_;
  std::vector<Flag> flags_;
  std::map<std::string, std::function<bool()>> yields_;

  void parse_with_errors(const std::vector<std::string>& arguments);
  bool take_environment();
  CLI::Option* note(CLI::Option* option, const std::string& names, const std::string& value, const std::string& help);
  CLI::Option* add(const std::string& names, const std::string& value, const std::string& help,
                   const std::function<void(const std::string& name, const std::string& value)>& take);
};

// Returns `text` in lines of at most `width` columns; lines after the first are indented.
std::string wrap_text(std::string_view text, std::size_t width, std::size_t indent);

// Returns what to add to a message about wrong usage if flags that it names were taken from the environment: the
// variables to unset. Otherwise "".
std::string environment_note(const std::string& message);

// Convert the whole string; throw UsageError naming the flag.
std::int64_t parse_wide_integer(const std::string& flag, const std::string& text, std::int64_t lowest,
                                std::int64_t highest);
int parse_integer(const std::string& flag, const std::string& text, int lowest,
                  int highest = std::numeric_limits<int>::max());
float parse_number(const std::string& flag, const std::string& text);

// Calls `parse` for a flag's value. An Error about a wrong value or name becomes a UsageError that begins with the
// flag, while a file that the value names and that cannot be read stays an Error.
template <typename Parse>
auto value_of(const std::string& flag, const Parse& parse) {
  try {
    return parse();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kNotFound) throw;
    const std::string what = error.what();
    throw UsageError(what.starts_with(flag) ? what : flag + ": " + what);
  }
}

}  // namespace winnow::cli
