#include "cli/sampling_flags.h"

#include "cli/prompt_source.h"

namespace winnow::cli {

void add_sampling_flags(CommandLine& line, SamplingFlags& flags) {
  SamplingOptions& options = flags.options;
  line.integer("-s,--seed", flags.seed, -1, "seed of the sampler (default: -1, a random one)");
  const auto number = [&](const char* name, float& target, const SamplingRange& range, const char* help) {
    line.number(name, target, range.lowest, range.highest, help);
  };
  const auto integer = [&](const char* name, int& target, const SamplingRange& range, const char* help) {
    line.integer(name, target, static_cast<int>(range.lowest), static_cast<int>(range.highest), help);
  };
  number("--temp", options.temperature, SamplingOptions::kTemperature,
         "temperature; 0 always takes the likeliest token (default: 0.8)");
  integer("--top-k", options.top_k, SamplingOptions::kTopK,
          "choose among the K likeliest tokens; 0: all (default: 40)");
  number("--top-p", options.top_p, SamplingOptions::kTopP,
         "choose among the likeliest that sum to P; 1: all (default: 0.95)");
  number("--min-p", options.min_p, SamplingOptions::kMinP,
         "leave out tokens below P times the likeliest; 0: none (default: 0.05)");
  integer("--repeat-last-n", options.repeat_last_n, SamplingOptions::kRepeatLastN,
          "last tokens that the penalties look at (default: 64)");
  number("--repeat-penalty", options.repeat_penalty, SamplingOptions::kRepeatPenalty,
         "penalty of repeated tokens; 1: none (default: 1)");
  number("--presence-penalty", options.presence_penalty, SamplingOptions::kPresencePenalty,
         "penalty of tokens that are there (default: 0)");
  number("--frequency-penalty", options.frequency_penalty, SamplingOptions::kFrequencyPenalty,
         "penalty that grows with each use (default: 0)");
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
  if (flags.grammar_file) options.grammar = read_text_file(*flags.grammar_file, input::kGrammar);
  const bool empty_grammar = (flags.grammar || flags.grammar_file) && options.grammar.empty();
  if (empty_grammar) throw UsageError("the grammar is empty: leave the flag out, or give rules with a `root`");
  return options;
}

void check_grammar(const SamplingFlags& flags, const std::shared_ptr<const Model>& model) {
  if (!flags.grammar && !flags.grammar_file) return;
  try {
    Sampler(model, sampling_options(flags));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    if (flags.grammar) throw UsageError(std::string("--grammar: ") + error.what());
    throw Error(ErrorCode::kBadFile, "'" + *flags.grammar_file + "': " + error.what());
  }
}

}  // namespace winnow::cli
