#include "cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/nearest_name.h"
#include "cli/text_output.h"

namespace winnow::cli {
namespace {

constexpr std::size_t kHelpWidth = 80;
constexpr std::size_t kHelpColumn = 30;

// llama.cpp's flags of several letters after one dash, which CLI11 cannot declare.
struct Alias {
  std::string_view written, declared;

  // Returns whether this is another name of the flag that is declared with these names.
  bool is_of(std::string_view names) const { return names.substr(0, names.find(',')) == declared; }
};
constexpr Alias kAliases[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-np", "--parallel"}, {"-ngl", "--gpu-layers"}};

// Returns the shortest name, as people type it: "-n" of "-n,--predict".
std::string short_name(const std::string& names) {
  for (const Alias& alias : kAliases) {
    if (alias.is_of(names)) return std::string(alias.written);
  }
  return names.substr(0, names.find(','));
}

std::string names_for_help(const std::string& names, const std::string& value) {
  std::string shown;
  for (const char c : names) {
    shown += c;
    if (c == ',') shown += ' ';
  }
  if (shown.starts_with("--")) shown.insert(0, "    ");
  for (const Alias& alias : kAliases) {
    if (alias.is_of(names)) shown = std::string(alias.written) + ", " + shown.substr(shown.find_first_not_of(' '));
  }
  return value.empty() ? shown : shown + " " + value;
}

// If not null, parse() stores the flags here instead of parsing.
std::vector<Flag>* listing = nullptr;

// A flag whose value the environment sets.
struct SetByEnvironment {
  std::vector<std::string> names;  // as they are typed
  std::string variable;
};
std::vector<SetByEnvironment> set_by_environment;

bool is_set(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value != nullptr && *value != '\0';
}

// Returns whether a message names the flag, and not only one of a longer name.
bool names_flag(const std::string& message, const std::string& flag) {
  for (std::size_t at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
    const std::size_t end = at + flag.size();
    const bool begins = at == 0 || message[at - 1] == ' ';
    if (begins &&
        (end == message.size() || (message[end] != '-' && std::isalnum(static_cast<unsigned char>(message[end])) == 0)))
      return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> Flag::typed_names() const {
  std::vector<std::string> typed;
  if (!names.starts_with('-')) return typed;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) typed.push_back(name);
  for (const Alias& alias : kAliases) {
    if (alias.is_of(names)) typed.emplace_back(alias.written);
  }
  return typed;
}

std::vector<std::string> Flag::variables() const {
  std::vector<std::string> variables;
  for (const std::string& name : typed_names()) {
    if (!name.starts_with("--")) continue;
    std::string& variable = variables.emplace_back("WINNOW_ARG_");
    for (const char c : name.substr(2)) {
      variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  return variables;
}

std::vector<Flag> CommandLine::flags_of(const std::function<void()>& command) {
  std::vector<Flag> flags;
  listing = &flags;
  try {
    command();
  } catch (...) {
    listing = nullptr;
    throw;
  }
  listing = nullptr;
  return flags;
}

std::string wrap_text(std::string_view text, std::size_t width, std::size_t indent) {
  std::string wrapped;
  std::size_t column = indent;
  bool line_is_empty = true;
  const auto new_line = [&] {
    wrapped += '\n';
    wrapped.append(indent, ' ');
    column = indent;
    line_is_empty = true;
  };
  while (!text.empty()) {
    if (text.front() == '\n') {
      new_line();
      text.remove_prefix(1);
      continue;
    }
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (!line_is_empty && column + 1 + word.size() > width) new_line();
    if (!line_is_empty) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
    line_is_empty = false;
    text.remove_prefix(end);
    if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  return wrapped;
}

std::int64_t parse_wide_integer(const std::string& flag, const std::string& text, std::int64_t lowest,
                                std::int64_t highest) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_too_long = error == std::errc::result_out_of_range;
  if ((error != std::errc() && !is_too_long) || rest != end) {
    throw UsageError(flag + " takes a whole number, not '" + text + "'");
  }
  if (!is_too_long && value >= lowest && value <= highest) return value;
  const bool is_bounded = highest != std::numeric_limits<int>::max();
  if (!is_bounded && !is_too_long && value < lowest) {
    throw UsageError(flag + " takes a whole number of at least " + std::to_string(lowest) + ", not " + text);
  }
  throw UsageError(flag + " takes a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest) +
                   ", not " + text);
}

int parse_integer(const std::string& flag, const std::string& text, int lowest, int highest) {
  return static_cast<int>(parse_wide_integer(flag, text, lowest, highest));
}

float parse_number(const std::string& flag, const std::string& text) {
  float value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value)) {
    throw UsageError(flag + " takes a number, not '" + text + "'");
  }
  return value;
}

CommandLine::CommandLine(const std::string& command, const std::string& arguments, const std::string& summary,
                         const std::string& examples)
    : command_(command), arguments_(arguments), summary_(summary), examples_(examples) {
  app_.set_help_flag("-h,--help", "");
  app_.allow_extras();
}

CLI::Option* CommandLine::note(CLI::Option* option, const std::string& names, const std::string& value,
                               const std::string& help) {
  flags_.push_back({group_, names, value, help});
  return option;
}

CLI::Option* CommandLine::add(const std::string& names, const std::string& value, const std::string& help,
                              const std::function<void(const std::string&, const std::string&)>& take) {
  const std::string name = short_name(names);
  CLI::Option* option =
      app_.add_option_function<std::vector<std::string>>(names, [take, name](const std::vector<std::string>& given) {
        for (const std::string& text : given) take(name, text);
      });
  // One value a flag; without this CLI11 would take every argument that follows.
  option->allow_extra_args(false);
  return note(option, names, value, help);
}

CLI::Option* CommandLine::text(const std::string& names, const std::string& value, std::string& target,
                               const std::string& help) {
  return add(names, value, help, [&target](const std::string&, const std::string& given) { target = given; });
}

CLI::Option* CommandLine::text(const std::string& names, const std::string& value, std::optional<std::string>& target,
                               const std::string& help) {
  return add(names, value, help, [&target](const std::string&, const std::string& given) { target = given; });
}

CLI::Option* CommandLine::integer(const std::string& names, int& target, int lowest, const std::string& help) {
  return add(names, "N", help, [&target, lowest](const std::string& name, const std::string& given) {
    target = parse_integer(name, given, lowest);
  });
}

CLI::Option* CommandLine::integer(const std::string& names, std::optional<int>& target, int lowest,
                                  const std::string& help) {
  return add(names, "N", help, [&target, lowest](const std::string& name, const std::string& given) {
    target = parse_integer(name, given, lowest);
  });
}

CLI::Option* CommandLine::integer(const std::string& names, int& target, int lowest, int highest,
                                  const std::string& help) {
  return add(names, "N", help, [&target, lowest, highest](const std::string& name, const std::string& given) {
    target = parse_integer(name, given, lowest, highest);
  });
}

CLI::Option* CommandLine::integer(const std::string& names, std::int64_t& target, std::int64_t lowest,
                                  std::int64_t highest, const std::string& help) {
  return add(names, "N", help, [&target, lowest, highest](const std::string& name, const std::string& given) {
    target = parse_wide_integer(name, given, lowest, highest);
  });
}

CLI::Option* CommandLine::number(const std::string& names, float& target, double lowest, double highest,
                                 const std::string& help) {
  return add(names, "X", help, [&target, lowest, highest](const std::string& name, const std::string& given) {
    target = parse_number(name, given);
    if (target >= static_cast<float>(lowest) && target <= static_cast<float>(highest)) return;
    char range[80];
    std::snprintf(range, sizeof range, " takes a number from %g to %g, not ", lowest, highest);
    throw UsageError(name + range + given);
  });
}

CLI::Option* CommandLine::flag(const std::string& names, bool& target, const std::string& help) {
  return note(app_.add_flag_callback(names, [&target] { target = true; }), names, "", help);
}

CLI::Option* CommandLine::integers(const std::string& names, std::vector<int>& target, int lowest,
                                   const std::string& help, int highest) {
  CLI::Option* option = app_.add_option_function<std::vector<std::string>>(
      names, [&target, lowest, highest, name = short_name(names)](const std::vector<std::string>& given) {
        target.clear();
        for (const std::string& text : given) target.push_back(parse_integer(name, text, lowest, highest));
      });
  option->allow_extra_args(false)->delimiter(',');
  return note(option, names, "N,N..", help);
}

CLI::Option* CommandLine::texts(const std::string& names, const std::string& value, char separator,
                                std::vector<std::string>& target, const std::string& help) {
  CLI::Option* option = app_.add_option_function<std::vector<std::string>>(
      names, [&target](const std::vector<std::string>& given) { target = given; });
  option->allow_extra_args(false);
  if (separator != '\0') option->delimiter(separator);
  return note(option, names, value, help);
}

CLI::Option* CommandLine::positional(const std::string& name, std::string& target, const std::string& help) {
  flags_.push_back({"Arguments", name, "", help});
  return app_.add_option(name, target);
}

std::string CommandLine::help() const {
  std::string out = "usage: " + command_ + " " + arguments_ + "\n\n" + wrap_text(summary_, kHelpWidth, 0) + "\n";
  std::string_view group;
  for (const Flag& flag : flags_) {
    if (flag.group != group) out += "\n" + flag.group + ":\n";
    group = flag.group;
    std::string left = "  " + names_for_help(flag.names, flag.value);
    if (left.size() + 2 > kHelpColumn) {
      out += left + "\n";
      left.clear();
    }
    left.resize(kHelpColumn, ' ');
    out += left + wrap_text(flag.help, kHelpWidth, kHelpColumn) + "\n";
  }
  if (!examples_.empty()) out += "\nExamples:\n" + examples_;
  return out;
}

bool CommandLine::parse(std::vector<std::string> arguments) {
  if (listing != nullptr) {
    *listing = flags_;
    return false;
  }
  for (std::string& argument : arguments) {
    for (const Alias& alias : kAliases) {
      if (argument == alias.written) argument = alias.declared;
      if (argument.starts_with(std::string(alias.written) + "=")) {
        argument.replace(0, alias.written.size(), alias.declared);
      }
    }
  }
  try {
    // The first time, what is typed is known: the environment's values that it excludes are then left out.
    parse_with_errors(arguments);
    if (take_environment()) parse_with_errors(arguments);
  } catch (const CLI::CallForHelp&) {
    write_output(help());
    return false;
  }
  for (const std::string& extra : app_.remaining()) {
    if (!extra.starts_with("-")) {
      throw UsageError("unexpected argument '" + extra + "'" +
                       (advice_.empty() ? "; `" + command_ + " --help` lists the flags" : ": " + advice_));
    }
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string given = extra.substr(0, extra.find('='));
    if (!given.starts_with("--")) names.clear();
    throw UsageError("there is no flag " + given + name_question(given, {names.begin(), names.end()}) + " `" +
                     command_ + " --help` lists them");
  }
  return true;
}

void CommandLine::parse_with_errors(const std::vector<std::string>& arguments) {
  // CLI11 takes the arguments from the back.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--name: 1 required TEXT missing"
    const std::string what = error.what();
    const CLI::Option* option = app_.get_option_no_throw(what.substr(0, what.find(':')));
    const std::string name = option != nullptr ? short_name(option->get_name(false, true)) : what;
    throw UsageError(name + " needs a value; `" + command_ + " --help` lists the flags");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; `" + command_ + " --help` lists the flags");
  }
}

// Has CLI11 take the flags that are not given from the environment when it parses next. Returns whether there are any.
bool CommandLine::take_environment() {
  set_by_environment.clear();
  for (const Flag& flag : flags_) {
    for (const std::string& variable : flag.variables()) {
      const std::vector<std::string> names = flag.typed_names();
      CLI::Option* option = app_.get_option(names.front());
      if (!is_set(variable) || option->count() > 0) continue;
      const auto yields =
          std::find_if(names.begin(), names.end(), [&](const auto& name) { return yields_.contains(name); });
      if (yields != names.end() && yields_.at(*yields)()) continue;
      option->envname(variable);
      set_by_environment.push_back({names, variable});
      break;
    }
  }
  return !set_by_environment.empty();
}

void CommandLine::yields(const std::string& name, std::function<bool()> is_contradicted) {
  yields_[name] = std::move(is_contradicted);
}

void CommandLine::exclude(const std::string& one, const std::string& other) {
  yields(one, [this, other] { return app_.get_option(other)->count() > 0; });
  yields(other, [this, one] { return app_.get_option(one)->count() > 0; });
}

std::string environment_note(const std::string& message) {
  std::string variables;
  for (const auto& [names, variable] : set_by_environment) {
    const bool is_named =
        std::any_of(names.begin(), names.end(), [&](const std::string& name) { return names_flag(message, name); });
    if (is_named) variables += (variables.empty() ? "" : ", ") + variable;
  }
  return variables.empty() ? "" : " (the environment sets " + variables + ": unset it to do without)";
}

}  // namespace winnow::cli
