// `winnow eval` and `winnow report` as processes. They need WINNOW_TEST_MODEL.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "charts/markup_check.h"
#include "cli/tool.h"
#include "winnow/model.h"

namespace winnow::test {
namespace {

using Words = std::vector<std::string>;

class EvalTool : public ModelToolTest {
 protected:
  std::string folder(const std::string& name) const { return directory_.file(name); }

  ProcessResult eval(const std::string& out, const Words& flags) const {
    Words arguments{"eval", "fidelity", "-m", model_, "-t", "1", "--lengths", "120", "--out", folder(out)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_tool(arguments);
  }

  std::string head_scores(int seed) const;
};

const Words kMatrix{"--methods", "full,tova:window=1", "--budgets", "20%", "--limit", "2", "--kv-memory", "1GiB"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Returns the text of a file of head importances for the model, different for every seed.
std::string EvalTool::head_scores(int seed) const {
  const ModelInfo info = Model::load(model_)->info();
  std::string text;
  for (int layer = 0; layer < info.n_layer(); ++layer) {
    for (int head = 0; head < info.layers[static_cast<std::size_t>(layer)].n_head; ++head) {
      text += (text.empty() ? "{\"" : ", \"") + std::to_string(layer) + "-" + std::to_string(head) + "\": [" +
              std::to_string(1 + (layer + seed * head) % 5) + "]";
    }
  }
  return text + "}";
}

TEST_F(EvalTool, ShardsAreOneRun) {
  const ProcessResult whole = eval("whole", kMatrix);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_NE(whole.out.find("tova:window=1"), std::string::npos);
  const ProcessResult first = eval("parts", with(kMatrix, {"--shard", "1/2"}));
  EXPECT_NE(first.out.find("2 of 4 answers"), std::string::npos) << first.out;
  const ProcessResult second = eval("parts", with(kMatrix, {"--shard", "2/2"}));
  EXPECT_EQ(second.out.substr(0, second.out.find('`')), whole.out.substr(0, whole.out.find('`')));

  const ProcessResult by_bytes = run_tool({"report", folder("parts"), "--by", "bytes"});
  ASSERT_EQ(by_bytes.exit_code, 0) << by_bytes.err;
  EXPECT_TRUE(std::filesystem::exists(folder("parts") + "/report/figures/fidelity-agnostic-by-bytes.svg"));
  expect_error(run_tool({"report", folder("parts"), "--by", "tokens"}), 2, "--by takes entries or bytes");
  const ProcessResult report = run_tool({"report", folder("parts")});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  const std::string page = read_bytes(folder("parts") + "/report/report.html");
  EXPECT_EQ(markup_error(page), "");
  EXPECT_EQ(outside_addresses(page), Words{});
  EXPECT_TRUE(std::filesystem::exists(folder("parts") + "/report/figures/fidelity-agnostic-by-budget.svg"));
  EXPECT_NE(read_bytes(folder("parts") + "/report/report.md").find("tova:window=1"), std::string::npos);

  // A resumed run that is complete computes and writes no answer.
  const std::string answers = read_bytes(folder("whole") + "/answers-1-of-1.jsonl");
  EXPECT_EQ(eval("whole", with(kMatrix, {"--resume"})).out, whole.out);
  EXPECT_EQ(read_bytes(folder("whole") + "/answers-1-of-1.jsonl"), answers);
  expect_error(eval("whole", {"--methods", "full,snapkv", "--budgets", "50%", "--limit", "2"}), 1,
               "another run (methods");
}

// The samples of a batch are limited by the tokens that are read in a minute, which is measured once for a folder.
TEST_F(EvalTool, ARunKeepsItsBoundOfTokens) {
  const auto bound = [&](const std::string& name) {
    return nlohmann::json::parse(read_bytes(folder(name) + "/run.json"))["run"]["batch_tokens"].get<std::int64_t>();
  };
  const Words flags{"--methods", "full", "--limit", "1"};
  ASSERT_EQ(eval("measured", flags).exit_code, 0);
  const std::int64_t measured = bound("measured");
  EXPECT_GT(measured, 100);
  ASSERT_EQ(eval("measured", flags).exit_code, 0);
  EXPECT_EQ(bound("measured"), measured);
  ASSERT_EQ(eval("given", with(flags, {"--batch-tokens", "5000"})).exit_code, 0);
  EXPECT_EQ(bound("given"), 5000);
  expect_error(eval("given", with(flags, {"--batch-tokens", "5001"})), 1, "batch_tokens");
  expect_error(eval("x", with(flags, {"--batch-tokens", "0"})), 2, "--batch-tokens");
}

TEST_F(EvalTool, BudgetsWithoutMethodsAreThoseOfAuto) {
  const ProcessResult result = eval("auto", {"--budgets", "30%bytes", "--limit", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("\nauto "), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nfull "), std::string::npos) << result.out;
}

// Prompts that end with their question weigh it; others have none that could weigh.
TEST_F(EvalTool, AQuestionInSightWeighs) {
  const auto losses = [&](const char* question) {
    const ProcessResult result = run_tool({"eval",       "fidelity:niah",
                                           "-m",         model_,
                                           "-t",         "1",
                                           "--lengths",  "600",
                                           "--limit",    "1",
                                           "--depths",   "50",
                                           "--methods",  "auto-fast;auto-fast:question-weight=0",
                                           "--budgets",  "10%bytes",
                                           "--question", question,
                                           "--out",      folder(question)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> kl;
    std::ifstream answers(folder(question) + "/answers-1-of-1.jsonl");
    for (std::string line; std::getline(answers, line);) {
      const auto answer = nlohmann::json::parse(line);
      if (answer["method"] != "full") kl.push_back(answer["kl"]);
    }
    EXPECT_EQ(kl.size(), 2U);
    return kl;
  };
  const std::vector<double> aware = losses("aware"), agnostic = losses("agnostic");
  EXPECT_NE(aware.front(), aware.back());
  EXPECT_EQ(agnostic.front(), agnostic.back());
}

TEST_F(EvalTool, MistakesLeaveNothingBehind) {
  const Words snapkv{"--methods", "snapkv"};
  expect_error(eval("x", snapkv), 2, "needs a budget");
  expect_error(eval("x", {"--methods", "full", "--budgets", "5%"}), 2, "no effect");
  expect_error(eval("x", {"--methods", "streaming-llm", "--budgets", "3"}), 1, "always kept");
  expect_error(eval("x", {"--methods", "streaming-llm,expected-attention,kvzip", "--budgets", "50%,1%,3"}), 1,
               "\n  kvzip with the budget 1% at ");
  expect_error(eval("x", {"--methods", "snapkv,snapkv:window=32", "--budgets", "50%"}), 2, "is given twice");
  expect_error(eval("x", {"--methods", "ada-snapkv;snapkv:heads=ada", "--budgets", "50%"}), 2, "are the same method");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--tasks", "nothing"})), 2, "unknown task 'nothing'");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--lengths", "1000000"})), 1, "does not fit");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--question", "aware"})), 2, "no questions");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--shard", "3/2"})), 2, "i/n");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--limit", "1", "--shard", "2/2"})), 1, "no sample");
  expect_error(eval("x", with(snapkv, {"--budgets", "50%", "--resume"})), 1, "no run to resume");
  const Words full{"--methods", "full"};
  expect_error(eval("x", with(full, {"--depths", "50"})), 2, "--depths has no effect on fidelity");
  expect_error(eval("x", with(full, {"--words", "w"})), 2, "--words has no effect");
  expect_error(eval("x", with(full, {"--data", "fidelity=d"})), 2, "--data has no effect");
  expect_error(eval("x", with(full, {"--skip-bad"})), 2, "--skip-bad has no effect");
  expect_error(eval("x", with(full, {"--lengths", "120"})), 2, "the length 120 is given twice");
  expect_error(eval("x", with(full, {"-c", "150"})), 1, "fidelity: text and continuation have");
  expect_error(eval("x", with(snapkv, {"--budgets", "kl=0.5"})), 2, "no second pass");
  expect_error(run_tool({"eval", "niah", "niah", "-m", model_, "--methods", "full", "--out", folder("x")}), 2,
               "the benchmark niah is given twice");
  EXPECT_FALSE(std::filesystem::exists(folder("x")));
  expect_error(run_tool({"eval", "--out", folder("x")}), 2, "name benchmarks");
  expect_error(run_tool({"eval", "nonsense", "-m", model_, "--methods", "full", "--out", folder("x")}), 2, "nonsense");
  expect_error(run_tool({"report", folder("x")}), 1, "no evaluation");
}

TEST_F(EvalTool, ARunWithoutAnyAnswerIsAnError) {
  const ProcessResult result = eval("none", {"--methods", "full", "--limit", "1", "--kv-memory", "1KiB"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("--kv-memory is 1KiB"), std::string::npos) << result.out;
  EXPECT_NE(result.err.find("error: no answer succeeded"), std::string::npos) << result.err;
}

// A method late in the list whose file is missing or of another model must be refused before the other methods run for
// hours.
TEST_F(EvalTool, FilesOfAllMethodsAreReadBeforeTheRunBegins) {
  const auto mistake = [&](const std::string& method, const std::string& part, int exit_code = 1) {
    expect_error(eval("x", {"--methods", "full;snapkv;" + method, "--budgets", "50%", "--limit", "1"}), exit_code,
                 part);
    EXPECT_FALSE(std::filesystem::exists(folder("x"))) << method;
  };
  mistake("lu-kv-snapkv:window=5,kernel=3", "make one with `winnow calibrate");  // no profile for these options
  mistake("lu-kv-snapkv:profile=" + folder("none.json"), "No such file");
  mistake("headkv", "head-file=FILE", 2);
  mistake("headkv:head-file=" + folder("none.json"), "No such file");
  mistake("headkv:head-file=" + directory_.write("broken.json", R"({"0-0": [1)"), "broken.json");
  mistake("duo-attention:head-file=" + directory_.write("small.json", R"({"0-0": [1], "1-0": [2]})"), "layers");
}

TEST_F(EvalTool, AnotherTableIsAnotherRun) {
  const std::string first = directory_.write("heads.json", head_scores(1));
  const Words matrix{"--methods", "headkv:head-file=" + first, "--budgets", "50%", "--limit", "1"};
  ASSERT_EQ(eval("run", matrix).exit_code, 0);
  EXPECT_EQ(eval("run", with(matrix, {"--resume"})).exit_code, 0);
  directory_.write("heads.json", head_scores(2));
  expect_error(eval("run", matrix), 1, "another run (tables");
}

}  // namespace
}  // namespace winnow::test
