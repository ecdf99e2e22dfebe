// What the tests of the tool share: where it is, the model, and what an error must look like.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/process.h"

namespace winnow::test {

// Never the model that a person's environment names. WINNOW_TOOL, if set, is another tool to test.
ProcessResult run_tool(const std::vector<std::string>& arguments, ProcessOptions options = {});

// Ended with the code, with nothing on the standard output and `error: ...` with the part in it on the standard error.
void expect_error(const ProcessResult& result, int exit_code, const std::string& part);

std::string read_file(const std::string& path);

// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Creates it and returns its path.
  std::string write(const std::string& name, const std::string& content) const;
  std::size_t count() const;

 private:
  std::filesystem::path path_;
};

// A test that runs the tool on the model of the environment's WINNOW_TEST_MODEL, and is skipped without one.
class ModelToolTest : public testing::Test {
 protected:
  void SetUp() override;

  std::string model_;
  TemporaryDirectory directory_;
};

}  // namespace winnow::test
