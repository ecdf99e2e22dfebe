// Runs winnow calibrate, analyze and inspect as a user does. Needs WINNOW_TEST_MODEL; the shipped profiles are for the
// default model, and their cases are skipped with another one.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class CalibrateTool : public ModelToolTest {
 protected:
  // Runs on one thread, because threads that wait for each other are very slow on a busy machine.
  ProcessResult tool(const std::string& command, const Words& flags, ProcessOptions options = {}) const {
    Words arguments{command, "-m", model_, "-t", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    options.environment.try_emplace("WINNOW_PROFILES", "");
    return run_tool(arguments, options);
  }
  ProcessResult calibrate(const Words& more, const ProcessOptions& options = {}) const {
    Words flags{"--samples", "3", "--tokens", "200", "--decode", "6", "-o", profile()};
    flags.insert(flags.end(), more.begin(), more.end());
    return tool("calibrate", flags, options);
  }
  std::string profile() const { return directory_.file("profile.json"); }
  std::string passage() const { return directory_.write("passage", read_bytes(text_).substr(0, 3000)); }
  bool is_default_model() const { return model_.find("SmolLM2-135M-Instruct-Q4_1") != std::string::npos; }

  const std::string text_ = std::string(WINNOW_PROFILES_PATH) + "/treasure-island.txt";
};

TEST_F(CalibrateTool, AnInterruptedCalibrationEndsWithTheSameFile) {
  ASSERT_EQ(calibrate({"-f", text_}).exit_code, 0);
  const std::string whole = read_bytes(profile());
  EXPECT_EQ(directory_.names().size(), 1U) << "the state was left, or a temporary file";
  std::filesystem::remove(profile());

  ProcessOptions options;
  options.react_after = 120;  // the heading and, without a terminal, the first sample's line
  options.then_interrupt = true;
  const ProcessResult stopped = calibrate({"-f", text_}, options);
  ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_NE(stopped.err.find("run the same command again"), std::string::npos) << stopped.err;
  EXPECT_FALSE(std::filesystem::exists(profile()));

  expect_error(calibrate({"-f", text_, "-s", "5"}), 1, "delete the file");
  const ProcessResult resumed = calibrate({"-f", text_});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("done already"), std::string::npos) << resumed.err;
  EXPECT_EQ(read_bytes(profile()), whole);
}

TEST_F(CalibrateTool, AProfileServesItsScorerAndNoOther) {
  ASSERT_EQ(calibrate({"-f", text_, "--scorer", "tova:sinks=2"}).exit_code, 0);
  const Words prompt{"-f", passage(), "-n", "1", "--kv-budget", "20%", "--kv-evict"};
  const auto run = [&](const std::string& method) {
    Words flags = prompt;
    flags.push_back(method);
    return tool("run", flags);
  };
  const ProcessResult right = run("tova:layers=lu-kv,heads=lu-kv,sinks=2,profile=" + profile());
  EXPECT_EQ(right.exit_code, 0) << right.err;
  expect_error(run("lu-kv-snapkv:profile=" + profile()), 1, "calibrated for the scorer tova");
  expect_error(run("tova:layers=lu-kv,heads=lu-kv,profile=" + profile()), 1, "calibrated for the scorer tova");
  expect_error(run("lu-kv-snapkv:window=5"), 1, "winnow calibrate");

  Json json = Json::parse(read_bytes(profile()));
  const auto changed = [&](const char* field, const Json& value) {
    Json other = json;
    other[field] = value;
    other.erase("checksum");
    return run("tova:layers=lu-kv,heads=lu-kv,sinks=2,profile=" + directory_.write("other.json", other.dump()));
  };
  EXPECT_EQ(changed("date", "2000-01-01").exit_code, 0);
  expect_error(changed("model", "0123456789abcdef"), 1, "another model");
  expect_error(changed("version", 2), 1, "another version");
  expect_error(changed("n_layer", 7), 1, "layers");
  json["kept"][3][0][0] = 0.123;
  expect_error(run("tova:layers=lu-kv,heads=lu-kv,sinks=2,profile=" + directory_.write("damaged.json", json.dump())), 1,
               "checksum");
}

TEST_F(CalibrateTool, TheDateMayBeSet) {
  const auto calibrated = [&](const char* second) {
    ProcessOptions options;
    options.environment["SOURCE_DATE_EPOCH"] = second;
    return tool("calibrate", {"--samples", "1", "--tokens", "120", "--decode", "3", "-o", profile(), "-f", passage()},
                options);
  };
  expect_error(calibrated("253402300800"), 2, "SOURCE_DATE_EPOCH");  // the year 10000
  const ProcessResult result = calibrated("4102444800");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(read_bytes(profile())).at("date"), "2100-01-01");
}

TEST_F(CalibrateTool, BadInputIsRefusedBeforeTheWork) {
  expect_error(calibrate({"-f", directory_.write("empty", "")}), 1, "empty");
  expect_error(calibrate({"-f", directory_.write("short", "Too little text.")}), 1, "more text");
  expect_error(calibrate({"-f", directory_.file("none")}), 1, "none");
  expect_error(calibrate({"-f", text_, "--questions", directory_.write("q", "{\"input\": \"Who?\"}\n")}), 1,
               "line 1 has no field \"question\"");
  expect_error(calibrate({"-f", text_, "--questions", directory_.write("q", "\n")}), 1, "no questions");
  expect_error(calibrate({"-f", text_, "--scorer", "snapvk"}), 2, "did you mean");
  expect_error(calibrate({"-f", text_, "--tokens", "36", "--no-chat"}), 1, "longer samples");
  expect_error(calibrate({"-f", text_, "--decode", "1000000"}), 1, "context");
  expect_error(calibrate({"-f", text_, "-o", "/no/such/folder/profile.json"}), 1, "/no/such/folder");
  expect_error(calibrate({"-f", text_, "-o", "-"}), 2, "-o FILE");
  expect_error(tool("calibrate", {"-f", text_}), 2, "-o FILE");
  EXPECT_FALSE(std::filesystem::exists(profile()));
}

TEST_F(CalibrateTool, TextsOfOtherSystemsAreReadAlike) {
  const std::string text = read_bytes(text_).substr(0, 4000);
  std::string other = "\xEF\xBB\xBF";
  for (const char c : text) other += c == '\n' ? "\r\n" : std::string(1, c);
  const std::string files[] = {directory_.write("unix", text), directory_.write("windows", other)};
  std::string profiles[2], analyses[2];
  for (int i = 0; i < 2; ++i) {
    ProcessOptions options;
    options.environment["SOURCE_DATE_EPOCH"] = "0";
    const ProcessResult made = tool(
        "calibrate", {"--samples", "1", "--tokens", "120", "--decode", "3", "-o", profile(), "-f", files[i]}, options);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    profiles[i] = read_bytes(profile());
    const Words flags{"-f", files[i], "--tokens", "150", "-n", "3", "--methods", "tova", "--csv", "-"};
    const ProcessResult analysed = tool("analyze", flags);
    ASSERT_EQ(analysed.exit_code, 0) << analysed.err;
    analyses[i] = analysed.out;
  }
  EXPECT_EQ(profiles[0], profiles[1]);
  EXPECT_EQ(analyses[0], analyses[1]);
  const std::string bad = directory_.write("latin", "caf\xE9 " + text);
  expect_error(calibrate({"-f", bad}), 1, "not UTF-8 at byte 3");
  expect_error(tool("analyze", {"-f", bad}), 1, "not UTF-8 at byte 3");
}

TEST_F(CalibrateTool, ShippedProfilesAreFoundAndUsed) {
  take_whole_model();
  if (!is_default_model()) GTEST_SKIP() << "the shipped profiles are for the default model";
  ProcessOptions options;
  options.environment["WINNOW_PROFILES"] = WINNOW_PROFILES_PATH;
  for (const char* method : {"lu-kv-snapkv", "lu-kv-keydiff", "lu-kv-expected-attention"}) {
    const ProcessResult result =
        tool("run", {"-f", passage(), "-n", "1", "--kv-evict", method, "--kv-budget", "20%", "--json", "-"}, options);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::set<int> kept;
    const Json report = Json::parse(result.out);
    for (const Json& layer : report["kv"]["kept"]) {
      for (const int head : layer) kept.insert(head);
    }
    EXPECT_GT(kept.size(), 30U) << method << ": the heads are all the same";
  }
}

TEST_F(CalibrateTool, AnalyzeMeasuresAndKeepsItsContract) {
  const ProcessResult result =
      tool("analyze", {"-f", text_, "--tokens", "500", "--offset", "20", "-n", "20", "--methods",
                       "snapkv:window=16,pool=avg,critical-ada-snapkv,cake,lava", "--budgets", "15%,100", "--json",
                       directory_.file("a.json"), "--csv", directory_.file("a.csv"), "-v"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(read_bytes(directory_.file("a.json")));
  EXPECT_EQ(json["context_tokens"], 500);
  EXPECT_EQ(json["cuts"].size(), 8U);
  EXPECT_EQ(json["cuts"][0]["method"], "snapkv:window=16,pool=avg");
  EXPECT_EQ(json["cuts"][1]["budget"], "100");
  EXPECT_TRUE(json["violations"].empty()) << json["violations"];
  for (const Json& cut : json["cuts"]) {
    std::int64_t kept = 0;
    for (const Json& layer : cut["layers"]) {
      for (const std::int64_t head : layer["kept"]) kept += head;
    }
    EXPECT_EQ(kept, cut["entries_kept"]);
  }
  for (const char* word : {"critical-ada-snapkv", "theta-hat", "dispersion", "perplexity"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word;
  }
}

TEST_F(CalibrateTool, AnalyzeAsksAQuestion) {
  const ProcessResult result = tool("analyze", {"-f", text_, "--tokens", "300", "-q", "What was found on day 3?", "-n",
                                                "12", "--methods", "snapkv", "--json", "-"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_TRUE(json["continuation"]["is_answer"]);
  EXPECT_GT(json["question_tokens"], 5);
  EXPECT_GT(json["cuts"][0]["next"]["kl_mean"], 0);
}

TEST_F(CalibrateTool, AnalyzeAndInspectRefuseWhatTheyCannotDo) {
  expect_error(tool("analyze", {"-f", passage(), "--methods", "full"}), 2, "full");
  expect_error(tool("analyze", {"-f", text_, "--methods", "snapvk"}), 2, "did you mean");
  expect_error(tool("analyze", {"-f", text_, "--budgets", "0%"}), 2, "budget");
  expect_error(tool("analyze", {"-p", "short", "--tokens", "50"}), 1, "more text");
  expect_error(tool("analyze", {"-p", ""}), 2, "empty");
  expect_error(tool("analyze", {"-f", text_, "--no-chat"}), 2, "no effect");
  expect_error(tool("analyze", {"-f", text_, "--json", "-", "--csv", "-"}), 2, "standard output");
  expect_error(tool("inspect", {"-f", text_}), 2, "-o FILE");
  expect_error(tool("inspect", {"-f", text_, "-o", "/no/such/folder/page.html"}), 1, "/no/such/folder");
}

}  // namespace
}  // namespace winnow::test
