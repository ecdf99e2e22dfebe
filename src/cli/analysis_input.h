// Flags of the commands that analyse methods on a text, and the analysis itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "cli/prompt_source.h"
#include "study/analysis/analysis.h"

namespace winnow::cli {

struct AnalysisFlags {
  ModelFlags model;
  PromptFlags prompt;
  std::optional<std::string> question;
  bool no_chat = false;
  int offset = 0;               // tokens of the text that are left out before the context
  std::optional<int> n_tokens;  // tokens of the context; not set: all but the continuation
  int n_continuation = 64;
  std::vector<std::string> methods = {"snapkv", "ada-snapkv", "critical-ada-snapkv", "cake", "lava"};
  std::vector<std::string> budgets = {"20%"};
};

void add_analysis_flags(CommandLine& line, AnalysisFlags& flags);

// Loads the model and analyses the text. Returns nullopt after Ctrl-C, with a message on the standard error. Throws
// Error and UsageError.
std::optional<Analysis> run_analysis(const AnalysisFlags& flags);

}  // namespace winnow::cli
