// The tool under mpirun: a model that two or three processes share answers as one process does, and an error of one of
// them ends all. Skipped where there is no mpirun or where winnow was built without MPI.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/process.h"
#include "model/tiny_model.h"

namespace winnow::test {
namespace {

using Json = nlohmann::json;

class Ranks : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(WINNOW_MPIEXEC).empty())
      GTEST_SKIP() << "there is no mpirun, or winnow was built without MPI, or with sanitizers";
  }

  // interrupt_after: bytes of output after which the process is interrupted; 0: never.
  ProcessResult run(int n_ranks, Words words, double timeout_s = 120, const std::string& input = "",
                    std::size_t interrupt_after = 0) const {
    Words all;
    if (n_ranks > 1) {
      all = {WINNOW_MPIEXEC, "--allow-run-as-root", "--oversubscribe", "-np", std::to_string(n_ranks)};
    }
    all.push_back(WINNOW_TOOL_PATH);
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"-m", model_.path(), "-t", "1"});
    ProcessOptions options;
    options.timeout_s = timeout_s;
    options.input = input;
    options.react_after = interrupt_after;
    options.then_interrupt = interrupt_after > 0;
    // Containers often forbid a process to read another's memory. Of two mpirun that begin at once, one fails if
    // both make the folder of sessions.
    options.environment = {{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
                           {"OMPI_MCA_orte_tmpdir_base", sessions_.path()}};
    return run_process(all, options);
  }

  static std::string long_text() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "word" + std::to_string(i * 37 % 101) + " ";
    return text;
  }

  // No machine fills this context before the interrupt.
  const TinyModel model_{{.n_layer = 5, .n_ctx = 1 << 18, .chat_template = kChatmlTemplate}};
  const TemporaryDirectory directory_, sessions_;
};

TEST_F(Ranks, AnswerAsOneProcess) {
  for (const Words& cache : {Words{},
                             {"--kv-evict", "lava", "--kv-budget", "20%", "--kv-decode", "cut:every=3"},
                             {"--kv-budget", "20%bytes"},
                             {"--kv-budget", "kl=10"}}) {
    Words words = {"run", "-p", long_text(), "-n", "12", "--ignore-eos", "--seed", "7", "--json", "-"};
    words.insert(words.end(), cache.begin(), cache.end());
    const ProcessResult alone = run(1, words);
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const Json expected = Json::parse(alone.out);
    EXPECT_FALSE(expected.contains("ranks"));
    for (const int n_ranks : {2, 3}) {
      const ProcessResult shared = run(n_ranks, words);
      ASSERT_EQ(shared.exit_code, 0) << shared.err;
      const Json report = Json::parse(shared.out);
      EXPECT_EQ(report["token_ids"], expected["token_ids"]);
      for (const char* key : {"kept", "bytes_kept", "bytes_full", "entries_kept"}) {
        EXPECT_EQ(report["kv"][key], expected["kv"][key]) << key;
      }
      ASSERT_EQ(report["ranks"].size(), static_cast<std::size_t>(n_ranks));
      EXPECT_EQ(report["ranks"][0]["layers"][0], 0);
      EXPECT_EQ(report["ranks"][n_ranks - 1]["layers"][1], 5);
    }
  }
}

// Only rank 0 samples and reads the standard input.
TEST_F(Ranks, ReadTheStandardInput) {
  const Words words = {"run", "-n", "40", "--ignore-eos", "--temp", "3", "--seed", "4"};
  const ProcessResult alone = run(1, words, 120, long_text()), shared = run(2, words, 120, long_text());
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_FALSE(shared.out.empty());
  EXPECT_EQ(shared.out, alone.out);
}

TEST_F(Ranks, WriteOnce) {
  const std::string path = directory_.file("report.json"), positions = directory_.file("positions.json");
  const Words words = {"run",       "-p",
                       long_text(), "-n",
                       "3",         "--pipeline-layers",
                       "2",         "--json",
                       path,        "--kv-positions",
                       positions,   "--kv-evict",
                       "snapkv",    "--kv-budget",
                       "64"};
  const ProcessResult result = run(2, words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(read_bytes(path));
  EXPECT_EQ(report["ranks"][1]["layers"], Json({2, 5}));
  const Json held = Json::parse(read_bytes(positions));
  ASSERT_EQ(held["positions"].size(), 5U);
  for (std::size_t l = 0; l < 5; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(held["positions"][l][h].size(), report["kv"]["kept"][l][h].get<std::size_t>()) << l << " " << h;
    }
  }
  EXPECT_EQ(directory_.names().size(), 2U);
}

TEST_F(Ranks, MeasureInOneTable) {
  const ProcessResult result = run(2, {"bench", "-p", "64", "-n", "4", "-d", "0,100", "-r", "1", "-o", "json",
                                       "--kv-evict", "full", "--kv-evict", "cake", "--kv-budget", "40"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).size(), 8U);
}

// Only rank 0 reads the chat's input.
TEST_F(Ranks, Talk) {
  const Words words = {"chat", "--temp", "0", "-n", "8", "--kv-evict", "snapkv", "--kv-budget", "64"};
  const std::string input = "some words\nmore of them\n/clear\nand again\n";
  const ProcessResult alone = run(1, words, 120, input);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_FALSE(alone.out.empty());
  const ProcessResult shared = run(2, words, 120, input);
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_EQ(shared.out, alone.out);
}

// A conversation that several ranks save continues in one process and on another number of ranks, as one process's
// does.
TEST_F(Ranks, SaveAndLoad) {
  const Words words = {"chat", "--temp", "0", "-n", "8", "--kv-evict", "snapkv", "--kv-budget", "64"};
  const std::string shared = directory_.file("shared"), own = directory_.file("own");
  for (const auto& [n_ranks, path] : {std::pair{2, shared}, std::pair{1, own}}) {
    const ProcessResult saved = run(n_ranks, words, 120, "some words\n/save " + path + "\n");
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
  }
  EXPECT_TRUE(read_bytes(shared) == read_bytes(own));
  const auto gone_on = [&](int n_ranks, const std::string& path) {
    return run(n_ranks, words, 120, "/load " + path + "\nmore of them\n");
  };
  const ProcessResult expected = gone_on(1, own);
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  EXPECT_FALSE(expected.out.empty());
  for (const int n_ranks : {1, 3}) {
    const ProcessResult loaded = gone_on(n_ranks, shared);
    EXPECT_EQ(loaded.exit_code, 0) << loaded.err;
    EXPECT_EQ(loaded.out, expected.out);
  }
  const ProcessResult missing = gone_on(2, directory_.file("nowhere"));
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("cannot open the session file"), std::string::npos) << missing.err;
  EXPECT_EQ(missing.err.find("error: ", missing.err.find("error: ") + 1), std::string::npos) << missing.err;
  EXPECT_EQ(directory_.names().size(), 2U);
}

// Rank 0 writes the result folder, and a second run resumes it.
TEST_F(Ranks, Evaluate) {
  const auto answers = [](const std::string& folder) {
    std::map<std::string, Json> found;
    std::istringstream lines(read_bytes(folder + "/answers-1-of-1.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      Json answer = Json::parse(line);
      for (const char* measured : {"prefill_s", "evict_s", "decode_s", "bytes_peak"}) answer.erase(measured);
      found[answer["id"].dump() + answer["method"].dump()] = answer;
    }
    return found;
  };
  const auto words = [&](const std::string& folder) {
    return Words{"eval",      "niah",      "--lengths", "700", "--depths", "50", "--limit", "2",
                 "--methods", "full,lava", "--budgets", "30%", "--batch",  "2",  "--out",   folder};
  };
  const std::string alone = directory_.file("alone"), shared = directory_.file("shared");
  const ProcessResult expected = run(1, words(alone));
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  for (int time = 0; time < 2; ++time) {
    const ProcessResult result = run(2, words(shared));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(answers(shared), answers(alone));
    EXPECT_EQ(answers(shared).size(), 4U);
  }
}

// An interrupt prints at most one word and leaves no file. The exit code is the launcher's, which may also suppress the
// word: on a busy machine Open MPI's mpiexec sometimes kills its ranks before any handler of the signal can run.
TEST_F(Ranks, EndTogetherOnCtrlC) {
  const std::string path = directory_.file("report.json");
  const Words words = {"run", "-p", "some words", "-n", "-1", "--ignore-eos", "--temp", "3", "--json", path};
  const ProcessResult result = run(2, words, 60, "", 40);
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(result.err == "interrupted\n" || result.err.empty()) << result.err;
  EXPECT_TRUE(directory_.names().empty());
}

// An error prints one message, by rank 0, and leaves no file.
TEST_F(Ranks, EndTogetherWithAnError) {
  const struct {
    Words words;
    const char* message;
  } cases[] = {
      {{"run", "-p", "some words", "-n", "3", "--pipeline-layers", "9"}, "cannot begin with layer 9"},
      {{"run", "-p", "some words", "-n", "3", "--pipeline-layers", "1,2,3"}, "layers for 4 ranks were given"},
      {{"run", "-p", long_text(), "-n", "3", "--kv-limit", "100KiB"}, "limit"},
      {{"run", "-p", long_text(), "-c", "50"}, "the context of 50"},
      {{"run", "-n", "3", "-f", directory_.file("nowhere")}, "nowhere"},
      {{"run", "--no-such-flag"}, "no-such-flag"},
      {{"inspect", "-p", "some words"}, "does not share a model among ranks"},
  };
  for (const auto& c : cases) {
    Words words = c.words;
    const std::string path = directory_.file("report.json");
    if (words[0] == "run") words.insert(words.end(), {"--json", path});
    const ProcessResult result = run(2, words, 60);
    EXPECT_FALSE(result.timed_out) << c.message;
    EXPECT_NE(result.exit_code, 0) << c.message;
    const std::size_t at = result.err.find("error: ");
    ASSERT_NE(at, std::string::npos) << c.message << result.err;
    EXPECT_NE(result.err.find(c.message, at), std::string::npos) << c.message << result.err;
    EXPECT_EQ(result.err.find("error: ", at + 1), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  const ProcessResult alone = run(1, {"run", "-p", "some words", "--pipeline-layers", "2"});
  EXPECT_EQ(alone.exit_code, 1) << alone.err;
  EXPECT_NE(alone.err.find("there are 1"), std::string::npos) << alone.err;
}

}  // namespace
}  // namespace winnow::test
