// The tool's output before any model is loaded: help, lists, and refusals of wrong command lines.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {
namespace {

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(ToolHelp, FitsEightyColumns) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"run", "--help"},
                                                    {"chat", "-h"},
                                                    {"bench", "--help"},
                                                    {"info", "--help"},
                                                    {"serve", "--help"},
                                                    {"eval", "--help"},
                                                    {"inspect", "--help"},
                                                    {"analyze", "--help"},
                                                    {"calibrate", "--help"},
                                                    {"report", "--help"},
                                                    {"methods", "--help"},
                                                    {"methods"},
                                                    {"methods", "snapkv"}}) {
    const ProcessResult result = run_tool(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(result.out.size(), 100u);
    EXPECT_LE(longest_line(result.out), 80u) << arguments.front();
    EXPECT_EQ(result.err, "");
  }
}

TEST(ToolHelp, EveryCommandHasAnExample) {
  for (const char* command : {"run", "chat", "bench", "info", "methods"}) {
    EXPECT_NE(run_tool({command, "--help"}).out.find(std::string("  winnow ") + command), std::string::npos) << command;
    EXPECT_EQ(run_tool({"help", command}).out, run_tool({command, "--help"}).out);
  }
}

TEST(ToolHelp, Version) {
  const ProcessResult result = run_tool({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.out.starts_with("winnow ")) << result.out;
}

TEST(ToolHelp, NothingAskedForIsWrongUsage) {
  const ProcessResult result = run_tool({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("usage: winnow"), std::string::npos);
}

TEST(ToolUsage, NearestNames) {
  expect_error(run_tool({"rnu"}), 2, "did you mean run?");
  expect_error(run_tool({"run", "--kv-bugdet", "5"}), 2, "did you mean --kv-budget?");
  expect_error(run_tool({"run", "--temperature", "0"}), 2, "did you mean --temp?");
  expect_error(run_tool({"qqqqqqqq"}), 2, "there is no command 'qqqqqqqq'; `winnow --help`");
  expect_error(run_tool({"run", "-p", "x", "--kv-evict", "snapvk", "--kv-budget", "5"}), 2, "snapkv");
  expect_error(run_tool({"run", "-p", "x", "--kv-evict", "snapkv:widnow=4", "--kv-budget", "5"}), 2, "window");
  expect_error(run_tool({"methods", "pyramdkv"}), 2, "pyramidkv");
  for (const Words& flags : {Words{"methods", "foo"}, Words{"run", "-p", "x", "--kv-evict", "foo", "--kv-budget", "5"},
                             Words{"run", "-p", "x", "--kv-evict", "snapkv:foo=1", "--kv-budget", "5"}}) {
    const ProcessResult result = run_tool(flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.err.find("did you mean"), std::string::npos) << result.err;
  }
}

TEST(ToolUsage, ValuesOfFlags) {
  expect_error(run_tool({"run", "-p"}), 2, "-p needs a value");
  expect_error(run_tool({"run", "-p", "x", "-n", "many"}), 2, "-n takes a whole number, not 'many'");
  expect_error(run_tool({"run", "-p", "x", "-n", "99999999999"}), 2, "-n takes a whole number from -1 to 2147483647");
  expect_error(run_tool({"run", "-p", "x", "-b", "0"}), 2, "-b takes a whole number from 1 to 65536");
  expect_error(run_tool({"run", "-p", "x", "--temp", "nan"}), 2, "--temp takes a number");
  expect_error(run_tool({"run", "-p", "x", "-ctk", "f12"}), 2, "f16");
  expect_error(run_tool({"run", "-p", "x", "--kv-limit", "5"}), 2, "512MiB");
  expect_error(run_tool({"run", "-p", "x", "stray"}), 2, "unexpected argument 'stray'");
  expect_error(run_tool({"bench", "-o", "xml"}), 2, "md, json or csv");
  expect_error(run_tool({"bench", "-p", "0", "-n", "0"}), 2, "nothing to measure");
}

TEST(ToolUsage, FlagsWithoutEffect) {
  expect_error(run_tool({"run", "-p", "x", "--kv-evict", "full", "--kv-budget", "20%"}), 2,
               "--kv-budget has no effect");
  expect_error(run_tool({"run", "-p", "x", "--kv-evict", "full", "--kv-window", "8"}), 2, "--kv-window has no effect");
  expect_error(run_tool({"run", "-p", "x", "--kv-sinks", "8"}), 2, "--kv-sinks has no effect");
  expect_error(run_tool({"run", "-p", "x", "--question-aware"}), 2, "-q");
  expect_error(run_tool({"run", "-p", "x", "--system", "Be brief."}), 2, "--chat");
  expect_error(run_tool({"run", "-p", "x", "-f", "y"}), 2, "-p and -f");
  expect_error(run_tool({"run", "-p", "x", "--chat", "--no-chat"}), 2, "contradict");
  expect_error(run_tool({"run", "-p", "x", "--grammar", "a", "--grammar-file", "b"}), 2, "--grammar-file");
  expect_error(run_tool({"bench", "--kv-evict", "full", "--kv-budget", "20%"}), 2, "--kv-budget has no effect");
}

TEST(ToolUsage, EvictionNeedsABudgetAndShowsOne) {
  expect_error(run_tool({"run", "-p", "x", "--kv-evict", "snapkv"}), 2, "--kv-budget 20%");
  expect_error(run_tool({"bench", "--kv-evict", "snapkv"}), 2, "--kv-budget 20%");
}

TEST(ToolUsage, BudgetsThatCannotBe) {
  for (const char* budget : {"0", "0%", "-3", "-20%", "101%", "12 apples", "", "64MiBs", "nan"}) {
    SCOPED_TRACE(budget);
    expect_error(run_tool({"run", "-p", "x", "--kv-evict", "snapkv", "--kv-budget", budget}), 2, "budget");
  }
}

TEST(ToolUsage, OrderOfThePrefill) {
  expect_error(run_tool({"run", "-p", "x", "--prefill", "sideways"}), 2, "--prefill takes layer or chunked");
  expect_error(run_tool({"run", "-p", "x", "--prefill", "chunked"}), 2, "--prefill chunked has no effect");
  expect_error(run_tool({"run", "-p", "x", "--prefill-chunk", "64"}), 2, "without --prefill chunked");
}

TEST(ToolInput, Prompts) {
  const TemporaryDirectory directory;
  expect_error(run_tool({"run", "-p", ""}), 2, "the prompt of -p is empty");
  expect_error(run_tool({"run"}), 1, "the prompt is empty");  // the standard input is an empty pipe
  expect_error(run_tool({"run", "-f", directory.write("empty", "")}), 1, "the prompt is empty");
  expect_error(run_tool({"run", "-f", directory.write("newline", "\n")}), 1, "the prompt is empty");
  expect_error(run_tool({"run", "-f", directory.file("missing")}), 1, "No such file");
  expect_error(run_tool({"run", "-f", directory.file("")}), 1, "is a directory");
  expect_error(run_tool({"run", "-p", "x", "-q", ""}), 2, "question");
}

TEST(ToolOutput, UnwritableReportIsFoundBeforeTheModelIsLoaded) {
  const TemporaryDirectory directory;
  const std::string no_model = directory.file("no-model");
  for (const std::string& path : {directory.file("missing/report.json"), directory.file("")}) {
    const ProcessResult result = run_tool({"run", "-m", no_model, "-p", "x", "--json", path});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err.find("no-model"), std::string::npos) << result.err;
  }
  // The check whether the report can be written leaves no file.
  run_tool({"run", "-m", no_model, "-p", "x", "--json", directory.file("report.json")});
  EXPECT_EQ(directory.names().size(), 0u);
}

TEST(ToolModelFile, ThatIsNoModel) {
  const TemporaryDirectory directory;
  const auto with = [&](const std::string& path) { return run_tool({"run", "-m", path, "-p", "x", "-n", "1"}); };
  expect_error(with(directory.file("missing.gguf")), 1, "missing.gguf");
  expect_error(with(directory.file("")), 1, directory.path());
  expect_error(with(directory.write("empty.gguf", "")), 1, "empty.gguf");
  expect_error(with(directory.write("text.gguf", "This is a text and no model.")), 1, "text.gguf");
  // Version 3 is followed by counts of tensors and keys that no file can hold.
  std::string header = std::string("GGUF") + std::string("\x03\0\0\0", 4);
  const std::string huge("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x0F", 8), none(8, '\0');
  expect_error(with(directory.write("tensors.gguf", header + huge + none)), 1, "tensors.gguf");
  expect_error(with(directory.write("keys.gguf", header + none + huge)), 1, "keys.gguf");
  expect_error(with(directory.write("nothing.gguf", header + none + none)), 1, "nothing.gguf");
}

TEST(ToolModelFile, EnvironmentNamesTheModel) {
  ProcessOptions options;
  options.environment["WINNOW_MODEL"] = "/nowhere/named-by-environment.gguf";
  expect_error(run_tool({"run", "-p", "x"}, options), 1, "named-by-environment.gguf");
}

// A name in scripts/models.txt stands for its file, and the error names the file that is no model.
TEST(ToolModelFile, NamesOfFetchedModels) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("models"));
  directory.write("models/gemma-3-270m-q4_k_m.gguf", "This is a text and no model.");
  ProcessOptions options;
  options.folder = directory.file("");
  for (const char* name : {"Gemma-3-270M", "gemma 3 270m"}) {
    expect_error(run_tool({"run", "-m", name, "-p", "x"}, options), 1, "models/gemma-3-270m-q4_k_m.gguf");
    options.environment["WINNOW_MODEL"] = name;
    expect_error(run_tool({"run", "-p", "x"}, options), 1, "models/gemma-3-270m-q4_k_m.gguf");
    options.environment.erase("WINNOW_MODEL");
  }
  expect_error(run_tool({"run", "-m", "gemma-3", "-p", "x"}, options), 1, "gemma-3");  // no prefixes of names
  directory.write("gemma-3-270m", "");
  expect_error(run_tool({"run", "-m", "gemma-3-270m", "-p", "x"}, options), 1, "'gemma-3-270m'");
}

TEST(ToolEnvironment, UnknownInstructionSet) {
  ProcessOptions options;
  options.environment["WINNOW_ISA"] = "ABACUS";
  expect_error(run_tool({"methods"}, options), 1, "ABACUS");
}

TEST(ToolMethods, JsonListsPartsAndOptions) {
  const ProcessResult result = run_tool({"methods", "--json", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json methods = nlohmann::json::parse(result.out);
  ASSERT_GE(methods.size(), 8u);
  EXPECT_EQ(methods[0]["name"], "full");
  const nlohmann::json snapkv = nlohmann::json::parse(run_tool({"methods", "snapkv", "--json", "-"}).out);
  EXPECT_EQ(snapkv["scorer"], "snapkv");
  EXPECT_EQ(snapkv["options"]["window"], "32");
  EXPECT_EQ(snapkv["options"]["kernel"], "7");
  EXPECT_FALSE(snapkv["options"].contains("gamma"));  // an option of cake
}

TEST(ToolMethods, ReaderThatLeavesEarly) {
  ProcessOptions options;
  options.react_after = 1;
  options.then_close_output = true;
  const ProcessResult result = run_tool({"methods"}, options);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace winnow::test
