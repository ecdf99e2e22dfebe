#include "cli/sampling_flags.h"

#include "cli/prompt_source.h"

namespace winnow::cli {

void add_sampling_flags(CommandLine& line, SamplingFlags& flags) {
  SamplingOptions& options = flags.options;
  line.integer("-s,--seed", flags.seed, -1, "seed of the sampler (default: -1, a random one)");
  line.number("--temp", options.temperature, "temperature; 0 always takes the likeliest token (default: 0.8)");
  line.integer("--top-k", options.top_k, 0, "choose among the K likeliest tokens; 0: all (default: 40)");
  line.number("--top-p", options.top_p, "choose among the likeliest that sum to P; 1: all (default: 0.95)");
  line.number("--min-p", options.min_p, "leave out tokens below P times the likeliest; 0: none (default: 0.05)");
  line.integer("--repeat-last-n", options.repeat_last_n, -1, "last tokens that the penalties look at (default: 64)");
  line.number("--repeat-penalty", options.repeat_penalty, "penalty of repeated tokens; 1: none (default: 1)");
  line.number("--presence-penalty", options.presence_penalty, "penalty of tokens that are there (default: 0)");
  line.number("--frequency-penalty", options.frequency_penalty, "penalty that grows with each use (default: 0)");
  line.text("--grammar", "GBNF", flags.grammar, "grammar that the text must follow, with the rule `root`");
  line.text("--grammar-file", "FILE", flags.grammar_file, "the same from a file");
}

SamplingOptions sampling_options(const SamplingFlags& flags) {
  if (flags.grammar && flags.grammar_file) {
    throw UsageError("--grammar and --grammar-file both give a grammar: use one of them");
  }
  SamplingOptions options = flags.options;
  if (flags.seed >= 0) options.seed = static_cast<std::uint32_t>(flags.seed);
  if (flags.grammar) options.grammar = *flags.grammar;
  if (flags.grammar_file) options.grammar = read_text_file(*flags.grammar_file);
  const bool empty_grammar = (flags.grammar || flags.grammar_file) && options.grammar.empty();
  if (empty_grammar) throw UsageError("the grammar is empty: leave the flag out, or give rules with a `root`");
  return options;
}

}  // namespace winnow::cli
