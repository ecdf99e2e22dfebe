#include "cli/command_line.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

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

}  // namespace

std::string Flag::long_name() const {
  const std::size_t at = names.find("--");
  return at == std::string::npos ? "" : names.substr(at);
}

std::string Flag::variable() const {
  if (long_name().empty()) return "";
  std::string name = "WINNOW_ARG_";
  for (const char c : long_name().substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
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

int parse_integer(const std::string& flag, const std::string& text, int lowest, int highest) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const bool is_beyond = error == std::errc::result_out_of_range;
  if ((error != std::errc() && !is_beyond) || rest != end) {
    throw UsageError(flag + " takes a whole number, not '" + text + "'");
  }
  if (!is_beyond && value >= lowest && value <= highest) return value;
  const bool is_bounded = highest < std::numeric_limits<int>::max();
  if (!is_bounded && !is_beyond) {
    throw UsageError(flag + " takes a whole number of at least " + std::to_string(lowest) + ", not " + text);
  }
  throw UsageError(flag + " takes a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest) +
                   ", not " + text);
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
  return option->envname(flags_.back().variable());
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
                                   const std::string& help) {
  CLI::Option* option = app_.add_option_function<std::vector<std::string>>(
      names, [&target, lowest, name = short_name(names)](const std::vector<std::string>& given) {
        target.clear();
        for (const std::string& text : given) target.push_back(parse_integer(name, text, lowest));
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
  // CLI11 takes the arguments from the back.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app_.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    write_output(help());
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--name: 1 required TEXT missing"
    const std::string what = error.what();
    const CLI::Option* option = app_.get_option_no_throw(what.substr(0, what.find(':')));
    const std::string name = option != nullptr ? short_name(option->get_name(false, true)) : what;
    throw UsageError(name + " needs a value; `" + command_ + " --help` lists the flags");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; `" + command_ + " --help` lists the flags");
  }
  for (const std::string& extra : app_.remaining()) {
    if (!extra.starts_with("-")) {
      throw UsageError("unexpected argument '" + extra + "'; `" + command_ + " --help` lists the flags");
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

}  // namespace winnow::cli
