// The tool with a real model.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/tool.h"

namespace winnow::test {

using Json = nlohmann::json;

// Returns some hundreds of tokens in which no part repeats another.
inline std::string long_text() {
  const char* const things[] = {"river", "lantern", "harbour", "violin", "mountain", "garden", "letter", "winter"};
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += "On day " + std::to_string(i * 7 + 3) + " the traveller found a " + things[i % 8] + " near a " +
            things[(i * 3 + 1) % 8] + ". ";
  }
  return text;
}

class ToolWithModel : public ModelToolTest {
 protected:
  // Runs `winnow COMMAND -m MODEL ...` on one thread, since threads that wait for each other are slow on a busy
  // machine.
  ProcessResult tool(const std::string& command, const Words& flags, const ProcessOptions& options = {}) const {
    Words arguments{command, "-m", model_};
    if (command != "info") arguments.insert(arguments.end(), {"-t", "1"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_tool(arguments, options);
  }

  // Returns the report of a greedy run.
  Json report(Words flags) const {
    flags.insert(flags.end(), {"--temp", "0", "--json", "-"});
    const ProcessResult result = tool("run", flags);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? Json::parse(result.out) : Json();
  }
};

}  // namespace winnow::test
