// No file or pipe is read without a bound.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {
namespace {

constexpr std::size_t kGibibyte = std::size_t{1} << 30;
constexpr double kSeconds = 120;  // without a bound the tool would read until memory ends

TEST(InputBounds, FilesThatNeverEnd) {
  const TemporaryDirectory directory;
  const std::string prompt = directory.write("prompt", "x"), profile = directory.file("profile.json");
  for (const auto& [flags, part] : {
           std::pair<Words, std::string>{{"run", "-p", "x", "--grammar-file", "/dev/zero"},
                                         "1 MiB, the limit for a grammar"},
           {{"run", "-p", "x", "--kv-evict", "headkv:head-file=/dev/zero", "--kv-budget", "5"}, "head importances"},
           {{"run", "-p", "x", "--kv-evict", "lu-kv-snapkv:profile=/dev/zero", "--kv-budget", "5"}, "a profile"},
           {{"calibrate", "-f", "/dev/zero", "-o", profile}, "64 MiB, the limit for a text"},
           {{"calibrate", "-f", prompt, "--questions", "/dev/zero", "-o", profile}, "a file of questions"},
           {{"serve", "--port", "0", "--api-key-file", "/dev/zero"}, "a file of keys"},
       }) {
    SCOPED_TRACE(flags.back());
    ProcessOptions options;
    options.timeout_s = kSeconds;
    const ProcessResult result = run_tool(flags, options);
    expect_error(result, 1, part);
    EXPECT_LT(result.rss_peak_bytes, kGibibyte);
  }
}

TEST(InputBounds, JsonThatIsNestedWithoutEnd) {
  const TemporaryDirectory directory;
  const std::string deep = directory.write("deep.json", "{\"0-0\":" + std::string(8 << 20, '['));
  const ProcessResult result =
      run_tool({"run", "-p", "x", "--kv-evict", "headkv:head-file=" + deep, "--kv-budget", "5"});
  expect_error(result, 1, "nested more than");
  EXPECT_LT(result.rss_peak_bytes, kGibibyte / 4);
}

class InputBoundsWithModel : public ModelToolTest {
 protected:
  ProcessResult tool(const std::string& command, const Words& flags, ProcessOptions options = {}) const {
    Words arguments{command, "-m", model_, "-t", "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    options.timeout_s = kSeconds;
    return run_tool(arguments, options);
  }
  std::int64_t n_ctx() const {
    return nlohmann::json::parse(run_tool({"info", "-m", model_, "--json", "-"}).out)["model"]["n_ctx_train"];
  }
};

TEST_F(InputBoundsWithModel, PromptsThatNoContextHolds) {
  const std::string sparse = directory_.write("sparse", "A text. ");
  std::filesystem::resize_file(sparse, 500'000'000);
  ProcessOptions pipe, line;
  pipe.input = std::string(40'000'000, 'x');
  line.input = pipe.input + "\n";
  for (const ProcessResult& result :
       {tool("run", {"-f", "/dev/zero"}), tool("run", {"-f", sparse}), tool("run", {}, pipe),
        tool("run", {"-f", "-", "-q", "What?"}, pipe), tool("chat", {"-f", "/dev/zero"}), tool("chat", {}, line),
        tool("analyze", {"-f", "/dev/zero", "-n", "2"})}) {
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_FALSE(result.timed_out);
    EXPECT_TRUE(result.err.starts_with("error: ")) << result.err;
    EXPECT_LT(result.rss_peak_bytes, kGibibyte);
  }
  const std::string fits = "more than the context of 100";
  const ProcessResult counted = tool("run", {"-f", sparse, "-c", "100"});
  expect_error(counted, 1, "the prompt has at least ");
  EXPECT_NE(counted.err.find(fits), std::string::npos) << counted.err;
}

TEST_F(InputBoundsWithModel, ThePartThatIsAskedForIsEnough) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += "On day " + std::to_string(i) + " the traveller found a river. ";
  const std::string all = directory_.write("all", text), part = directory_.write("part", text.substr(0, 40'000));
  const Words flags{"--tokens", "100",       "--offset", "20",     "-n", "4", "--methods",
                    "tova",     "--budgets", "50%",      "--json", "-",  "-f"};
  const auto with = [&](const std::string& path) {
    Words words = flags;
    words.push_back(path);
    return tool("analyze", words);
  };
  const ProcessResult whole = with(all), beginning = with(part);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(whole.out, beginning.out);
}

}  // namespace
}  // namespace winnow::test
