// Helpers of the tool's tests: runs of the tool, temporary folders, and the model.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/process.h"
#include "temporary_directory.h"

namespace winnow::test {

// Runs the tool without the environment's WINNOW_MODEL. WINNOW_TOOL, if set, is the path of another tool to test.
ProcessResult run_tool(const Words& arguments, ProcessOptions options = {});

// Expects the exit code, an empty standard output and a standard error of `error: ...` that contains the part.
void expect_error(const ProcessResult& result, int exit_code, const std::string& part);

// A fixture that runs the tool on the first layers of the model that WINNOW_TEST_MODEL names (WINNOW_SHORT_TEST_MODEL,
// or the model itself), and skips the test without one.
class ModelToolTest : public testing::Test {
 protected:
  void SetUp() override;

  // For tests that look at what the model says: to be called first.
  void take_whole_model() { model_ = whole_model_; }

  std::string model_, whole_model_;
  TemporaryDirectory directory_;
};

}  // namespace winnow::test
