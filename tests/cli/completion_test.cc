// Shell completion, and flags from the environment.

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "cli/tool.h"

namespace winnow::test {
namespace {

// Returns the words that bash offers for the last word of a command line.
std::vector<std::string> offered(const std::string& script, const std::string& words) {
  const std::string program = "source " + script + "; COMP_WORDS=(" + words +
                              "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _winnow; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const ProcessResult result = run_process({"/bin/bash", "-c", program});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  std::vector<std::string> lines;
  std::istringstream out(result.out);
  for (std::string line; std::getline(out, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

TEST(Completion, OffersCommandsFlagsMethodsAndFiles) {
  const TemporaryDirectory directory;
  const std::string script = directory.write("script.bash", run_tool({"completion", "bash"}).out);
  directory.write("model.gguf", "");
  EXPECT_EQ(offered(script, "winnow re"), (Words{"report"}));
  EXPECT_EQ(offered(script, "winnow run --kv-ev"), (Words{"--kv-evict"}));
  EXPECT_EQ(offered(script, "winnow run --kv-evict snapk"), (Words{"snapkv"}));
  EXPECT_EQ(offered(script, "winnow run -m " + directory.file("mod")), (Words{directory.file("model.gguf")}));
  EXPECT_EQ(offered(script, "winnow run --predict ''"), Words{});
  std::filesystem::create_directory(directory.file("contexts"));
  directory.write("contexts.txt", "");
  EXPECT_EQ(offered(script, "winnow serve --cache-dir " + directory.file("con")), (Words{directory.file("contexts")}));
  EXPECT_EQ(offered(script, "winnow serve --por"), (Words{"--port"}));
  EXPECT_EQ(offered(script, "winnow run --por"), Words{});
  EXPECT_EQ(offered(script, "winnow methods ada-sn"), (Words{"ada-snapkv"}));
  directory.write("my model.gguf", "");
  EXPECT_EQ(offered(script, "winnow run -m " + directory.file("my")), (Words{directory.file("my model.gguf")}));
  EXPECT_EQ(offered(script, "winnow eval niah --data " + directory.file("my")),
            (Words{directory.file("my model.gguf")}));
  EXPECT_EQ(offered(script, "winnow run -ct"), (Words{"-ctk", "-ctv"}));
  EXPECT_EQ(offered(script, "winnow run -ngl ''"), Words{});
  EXPECT_EQ(offered(script, "winnow report " + directory.file("con")), (Words{directory.file("contexts")}));
  EXPECT_EQ(offered(script, "winnow eval fid"), (Words{"fidelity"}));
  EXPECT_EQ(offered(script, "winnow eval fidelity --methods ada-sn"), (Words{"ada-snapkv"}));
}

// Completion offers every flag that a command's help shows.
TEST(Completion, KnowsWhatHelpShows) {
  const std::string bash = run_tool({"completion", "bash"}).out, zsh = run_tool({"completion", "zsh"}).out;
  for (const char* command :
       {"run", "chat", "serve", "bench", "eval", "report", "analyze", "calibrate", "info", "inspect", "methods"}) {
    std::istringstream help(run_tool({command, "--help"}).out);
    int n_flags = 0;
    for (std::string line; std::getline(help, line);) {
      const std::size_t at = line.find("--");
      if (at > 8 || !line.starts_with("  ")) continue;
      const std::string name = line.substr(at, line.find_first_of(" ,\n", at) - at);
      EXPECT_NE(bash.find(" " + name), std::string::npos) << command << " " << name;
      EXPECT_NE(zsh.find("'" + name + "["), std::string::npos) << command << " " << name;
      ++n_flags;
    }
    EXPECT_GT(n_flags, 0) << command;
  }
  if (run_process({"/bin/sh", "-c", "command -v zsh"}).exit_code != 0) GTEST_SKIP() << "there is no zsh to read it";
  const TemporaryDirectory directory;
  const ProcessResult read = run_process({"/usr/bin/env", "zsh", "-n", directory.write("_winnow", zsh)});
  EXPECT_EQ(read.exit_code, 0) << read.err;
}

TEST(Completion, OfOtherShellsIsRefused) {
  expect_error(run_tool({"completion", "fish"}), 2, "use bash or zsh");
  expect_error(run_tool({"completion"}), 2, "which shell?");
}

TEST(Environment, StandsForFlagsThatAreNotGiven) {
  const auto with = [](const std::vector<std::string>& arguments, const std::string& variable, const char* value) {
    return run_tool(arguments, {.environment = {{"WINNOW_ARG_" + variable, value}}});
  };
  const std::vector<std::string> run = {"run", "-m", "none.gguf", "-p", "Hello"};
  expect_error(with(run, "THREADS", "many"), 2, "-t takes a whole number, not 'many'");
  // The command line takes precedence.
  std::vector<std::string> two = run;
  two.insert(two.end(), {"-t", "2"});
  expect_error(with(two, "THREADS", "many"), 1, "none.gguf");
  expect_error(with({"run", "-p", "Hello"}, "MODEL", "of-the-environment.gguf"), 1, "of-the-environment.gguf");
  const ProcessResult json = with({"methods", "snapkv"}, "JSON", "-");
  EXPECT_TRUE(json.out.starts_with("{") || json.out.starts_with("[")) << json.out.substr(0, 80) << json.err;
  // Variables for another command's flags are ignored, and those for no flag are refused.
  EXPECT_EQ(with({"methods"}, "PORT", "many").exit_code, 0);
  expect_error(with({"methods"}, "KV_BUGET", "10%"), 2, "did you mean WINNOW_ARG_KV_BUDGET?");
  expect_error(with({"run", "-p", "Hello"}, "JINJA", "perhaps"), 2, "--jinja");
  for (const char* name : {"TYPICAL", "TYPICAL_P"}) expect_error(with(run, name, "2"), 2, "--typical takes a number");
}

// A default of the environment must not be in the way of a command that excludes it.
TEST(Environment, YieldsToFlagsThatExcludeIt) {
  const TemporaryDirectory directory;
  const std::string text = directory.write("text", "Hello");
  const auto with = [](const std::vector<std::string>& flags, const std::string& variable, const std::string& value) {
    std::vector<std::string> words = {"run", "-m", "none.gguf"};
    words.insert(words.end(), flags.begin(), flags.end());
    return run_tool(words, {.environment = {{"WINNOW_ARG_" + variable, value}}});
  };
  const std::string reached = "none.gguf";  // all that can be wrong before the model is loaded was right
  expect_error(with({"-p", "x", "--kv-evict", "full"}, "KV_BUDGET", "10%"), 1, reached);
  expect_error(with({"-p", "x"}, "FILE", text), 1, reached);
  expect_error(with({"-f", text}, "PROMPT", "x"), 1, reached);
  expect_error(with({"-p", "x", "--no-chat"}, "CHAT", "1"), 1, reached);
  // Where none of the two is to be preferred, the error says where the value comes from.
  expect_error(with({"-p", "x"}, "SYSTEM", "Be brief."), 2, "the environment sets WINNOW_ARG_SYSTEM");
  expect_error(with({"-p", "x"}, "THREADS", "many"), 2, "the environment sets WINNOW_ARG_THREADS");
  expect_error(with({"-p", "x", "--threads", "many"}, "FILE", text), 2, "not 'many'\n");
}

}  // namespace
}  // namespace winnow::test
