// Flags that say how the next token is chosen; names and defaults as llama.cpp's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "winnow/sampling.h"

namespace winnow::cli {

struct SamplingFlags {
  SamplingOptions options;
  std::int64_t seed = -1;                   // -s, -1: a random one
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

// Throws UsageError for --repeat-last-n without a penalty; a server's requests may set one.
void check_penalty_range(const SamplingFlags& flags);

// Checks that the model has the tokens of --logit-bias and can follow the grammar, before anything is sampled. Throws
// UsageError for what a flag gives, Error for a file's grammar.
void check_with_model(const SamplingFlags& flags, const std::shared_ptr<const Model>& model);

}  // namespace winnow::cli
