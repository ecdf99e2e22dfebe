// Lists of methods and budgets: an item that is listed twice or cannot be met is refused before anything is computed.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {
namespace {

TEST(MethodLists, TheSameMethodInTwoForms) {
  const auto bench = [](const Words& methods) {
    Words flags{"bench", "--kv-budget", "20%"};
    for (const std::string& method : methods) flags.insert(flags.end(), {"--kv-evict", method});
    return run_tool(flags);
  };
  expect_error(bench({"snapkv", "snapkv"}), 2, "--kv-evict: 'snapkv' is given twice");
  expect_error(bench({"snapkv", "snapkv:window=32"}), 2, "'snapkv' and 'snapkv:window=32' are the same method");
  expect_error(bench({"ada-snapkv", "tova", "snapkv:heads=ada"}), 2, "'ada-snapkv' and 'snapkv:heads=ada'");
  expect_error(bench({"full", "full"}), 2, "'full' is given twice");
  for (const char* command : {"analyze", "inspect"}) {
    Words flags{command, "-p", "x", "--methods", "snapkv,tova,snapkv:window=32,pool=max"};
    if (flags[0] == "inspect") flags.insert(flags.end(), {"-o", "-"});
    expect_error(run_tool(flags), 2, "--methods: 'snapkv' and 'snapkv:window=32,pool=max' are the same method");
  }
}

// "bits=8:0.3,4" has a comma inside.
TEST(MethodLists, AreSplitAsThoseOfEval) {
  for (const Words& command : {Words{"analyze", "-p", "x"}, Words{"inspect", "-p", "x", "-o", "-"}}) {
    const auto with = [&](const std::string& list) {
      Words flags = command;
      flags.insert(flags.end(), {"--methods", list});
      return run_tool(flags);
    };
    expect_error(with("auto:bits=8:0.3,4,tova,auto:bits=8:0.30,4"), 2,
                 "'auto:bits=8:0.3,4' and 'auto:bits=8:0.30,4' are the same method");
    expect_error(with("window=16,snapkv"), 2, "--methods: 'window=16' is an option without a method");
    expect_error(with(","), 2, "--methods is empty");
  }
}

TEST(MethodLists, TheSameBudgetInTwoForms) {
  expect_error(run_tool({"bench", "--kv-evict", "snapkv", "--kv-budget", "20%,20.0%"}), 2, "20% is given twice");
  expect_error(run_tool({"analyze", "-p", "x", "--budgets", "1MiB,1024KiB"}), 2, "--budgets: the budget ");
  expect_error(run_tool({"info", "--kv-budget", "512,512"}), 2, "512 is given twice");
}

class MethodListsWithModel : public ModelToolTest {};

TEST_F(MethodListsWithModel, BudgetsThatCannotBeMetAreListedBeforeTheWork) {
  const ProcessResult bench = run_tool({"bench",
                                        "-m",
                                        model_,
                                        "-t",
                                        "1",
                                        "-r",
                                        "1",
                                        "-p",
                                        "64",
                                        "-n",
                                        "2",
                                        "-d",
                                        "0,400",
                                        "--kv-evict",
                                        "full",
                                        "--kv-evict",
                                        "tova",
                                        "--kv-evict",
                                        "snapkv:sinks=7",
                                        "--kv-budget",
                                        "10%,50%,4"});
  expect_error(bench, 1, " of these cuts cannot be made:");  // and no row is printed
  const auto has = [](const ProcessResult& result, const std::string& part) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "'" << part << "' is not in: " << result.err;
  };
  has(bench, "\n  snapkv:sinks=7 with the budget 10% at 64 tokens: ");
  has(bench, "\n  snapkv:sinks=7 with the budget 4 at 64 tokens: ");
  has(bench, "\n  snapkv:sinks=7 with the budget 4 at 400 tokens: ");
  EXPECT_EQ(bench.err.find("snapkv:sinks=7 with the budget 50% at 400"), std::string::npos) << bench.err;

  std::string text;
  for (int i = 0; i < 60; ++i) text += "On day " + std::to_string(i) + " the traveller found a river. ";
  const Words flags{"-m",        model_,      "-t",  "1",         "-p",
                    text,        "--tokens",  "300", "--methods", "tova,snapkv:sinks=31,lava:sinks=7",
                    "--budgets", "10%,2%,50%"};
  for (const char* command : {"analyze", "inspect"}) {
    Words all{command};
    all.insert(all.end(), flags.begin(), flags.end());
    if (all[0] == "inspect") all.insert(all.end(), {"-o", directory_.file("page.html")});
    const ProcessResult result = run_tool(all);
    expect_error(result, 1, " of these cuts cannot be made:");
    has(result, "\n  snapkv:sinks=31 with the budget 10% at 300 tokens: ");
    has(result, "\n  lava:sinks=7 with the budget 2% at 300 tokens: ");
  }
  EXPECT_EQ(directory_.names().size(), 0u);
}

}  // namespace
}  // namespace winnow::test
