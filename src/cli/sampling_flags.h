// Flags that say how the next token is chosen; names and defaults as llama.cpp's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "winnow/sampling.h"

namespace winnow::cli {

struct SamplingFlags {
  SamplingOptions options;
  int seed = -1;                            // -s, -1: a random one
  std::optional<std::string> samplers;      // --samplers
  std::vector<std::string> breakers;        // --dry-sequence-breaker
  std::vector<std::string> biases;          // -l
  std::optional<std::string> grammar;       // --grammar
  std::optional<std::string> grammar_file;  // --grammar-file
};

void add_sampling_flags(CommandLine& line, SamplingFlags& flags);

// Returns the options; reads the grammar's file. Throws Error, or UsageError, also for an option that has no effect
// with the others.
SamplingOptions sampling_options(const SamplingFlags& flags);

// Checks that the model can follow the grammar, before anything is sampled. Throws UsageError for the grammar of
// --grammar, Error for a file's.
void check_grammar(const SamplingFlags& flags, const std::shared_ptr<const Model>& model);

}  // namespace winnow::cli
