// The tool with a model in several files: given any of them, it prints and answers the same as with the model in one
// file.
#include "model/split_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/process.h"
#include "model/tiny_model.h"

namespace winnow::test {
namespace {

class SplitModel : public testing::Test {
 protected:
  static ProcessResult run(Words words, const std::string& model, const ProcessOptions& options = {}) {
    words.insert(words.begin(), WINNOW_TOOL_PATH);
    words.insert(words.end(), {"-m", model});
    return run_process(words, options);
  }

  const TinyModel model_;
  const TemporaryDirectory directory_;
  const std::vector<std::string> parts_ = write_parts(model_.path(), directory_.file("big-1.5B"));
};

TEST_F(SplitModel, IsTheModelFromAnyOfItsFiles) {
  for (const Words& words : {Words{"info", "--kv-budget", "64,10%"},
                             Words{"run", "-p", "the heat, then the hat", "-n", "8", "--temp", "0", "--ignore-eos"}}) {
    const ProcessResult whole = run(words, model_.path());
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    for (const std::string& part : parts_) {
      const ProcessResult split = run(words, part);
      EXPECT_EQ(split.exit_code, 0) << split.err;
      // The text after "memory " depends on the memory that is free at present.
      const auto lasting = [](const ProcessResult& result) { return result.out.substr(0, result.out.find("memory ")); };
      EXPECT_EQ(lasting(split), lasting(whole)) << part;
    }
  }
}

TEST_F(SplitModel, NamesWhatIsMissing) {
  std::filesystem::remove(parts_[1]);
  const ProcessResult result = run({"info"}, parts_[2]);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find(parts_[1]), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("put all parts into one folder"), std::string::npos) << result.err;
}

TEST_F(SplitModel, OutputThatCannotBeWrittenIsAnError) {
  ProcessOptions options;
  options.output = "/dev/full";
  std::string text;
  for (int i = 0; i < 20; ++i) text += "the heat, then the hat ";
  for (const Words& words : {Words{"info"}, Words{"analyze", "-p", text, "-n", "8", "--methods", "tova"}}) {
    const ProcessResult result = run(words, model_.path(), options);
    EXPECT_EQ(result.exit_code, 1) << words.front();
    EXPECT_NE(result.err.find("the standard output failed"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace winnow::test
