#include "cli/tool.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>

namespace winnow::test {

ProcessResult run_tool(const std::vector<std::string>& arguments, ProcessOptions options) {
  const char* path = std::getenv("WINNOW_TOOL");
  std::vector<std::string> all;
  all.emplace_back(path != nullptr ? path : WINNOW_TOOL_PATH);
  for (const std::string& argument : arguments) all.push_back(argument);
  options.environment.try_emplace("WINNOW_MODEL", "");
  return run_process(all, options);
}

namespace {

// Returns the standard error without the lines of progress before it, which appear on a busy machine.
std::string after_progress(std::string err) {
  for (std::size_t end; (end = err.find('\n')) != std::string::npos;) {
    if (err.substr(0, end).find(" through the layers") == std::string::npos) break;
    err.erase(0, end + 1);
  }
  return err;
}

}  // namespace

void expect_error(const ProcessResult& result, int exit_code, const std::string& part) {
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0) << result.err;
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_TRUE(after_progress(result.err).starts_with("error: ")) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << "'" << part << "' is not in: " << result.err;
  EXPECT_EQ(result.out, "");
}

void ModelToolTest::SetUp() {
  const auto file_of = [](const char* variable) {
    const char* path = std::getenv(variable);
    return path != nullptr && *path != '\0' && std::filesystem::exists(path) ? std::string(path) : std::string();
  };
  whole_model_ = file_of("WINNOW_TEST_MODEL");
  if (whole_model_.empty()) GTEST_SKIP() << "set WINNOW_TEST_MODEL to a GGUF file";
  model_ = file_of("WINNOW_SHORT_TEST_MODEL");
  if (model_.empty()) model_ = whole_model_;
}

}  // namespace winnow::test
