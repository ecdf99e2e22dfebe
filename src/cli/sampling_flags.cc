#include "cli/sampling_flags.h"

#include <cmath>
#include <cstdint>

#include "cli/prompt_source.h"

namespace winnow::cli {
namespace {

// No separator: the flag is given once for each value.
constexpr char kNoSeparator = '\0';

// Parses "TOKEN+BIAS" or "TOKEN-BIAS"; "TOKEN-inf" forbids the token.
LogitBias parse_bias(const std::string& text) {
  const std::size_t sign = text.find_first_of("+-", 1);
  if (sign == std::string::npos) {
    throw UsageError(
        "--logit-bias takes a token's number and what is added to its logit, as 15043+1 or 15043-inf, not '" + text +
        "'");
  }
  LogitBias bias{.token = parse_integer("--logit-bias", text.substr(0, sign), 0), .bias = 0};
  const std::string size = text.substr(sign + 1);
  bias.bias = size == "inf" ? INFINITY : parse_number("--logit-bias", size);
  if (text[sign] == '-') bias.bias = -bias.bias;
  return bias;
}

}  // namespace

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
  number("--typical,--typical-p", options.typical_p, SamplingOptions::kTypicalP,
         "choose among tokens that surprise as much as is expected, which sum to P; 1: all (default: 1)");
  number("--top-nsigma,--top-n-sigma", options.top_n_sigma, SamplingOptions::kTopNSigma,
         "leave out tokens N standard deviations below the likeliest; -1: none (default: -1)");
  number("--xtc-probability", options.xtc_probability, SamplingOptions::kXtcProbability,
         "how often all but the least likely of the likely tokens are left out (default: 0)");
  number("--xtc-threshold", options.xtc_threshold, SamplingOptions::kXtcThreshold,
         "likely, for --xtc-probability: from this probability on (default: 0.1)");
  number("--dynatemp-range", options.dynatemp_range, SamplingOptions::kDynatempRange,
         "let the temperature follow the entropy, so far from --temp (default: 0)");
  number("--dynatemp-exp", options.dynatemp_exponent, SamplingOptions::kDynatempExponent,
         "how it follows: the exponent (default: 1)");
  number("--dry-multiplier", options.dry_multiplier, SamplingOptions::kDryMultiplier,
         "penalty of sequences that are repeated; 0: none (default: 0)");
  number("--dry-base", options.dry_base, SamplingOptions::kDryBase,
         "it grows with each token by this factor (default: 1.75)");
  integer("--dry-allowed-length", options.dry_allowed_length, SamplingOptions::kDryAllowedLength,
          "tokens that may be repeated freely (default: 2)");
  integer("--dry-penalty-last-n", options.dry_penalty_last_n, SamplingOptions::kDryPenaltyLastN,
          "last tokens that it looks at; -1: the model's context (default: -1)");
  line.texts(
      "--dry-sequence-breaker", "TEXT", kNoSeparator, flags.breakers,
      "a text that no such sequence goes across, instead of newline : \" *; may be repeated; none: no such text");
  integer("--mirostat", options.mirostat, SamplingOptions::kMirostat,
          "1 or 2: Mirostat instead of top-k, top-p, min-p and their like; 0: none (default: 0)");
  number("--mirostat-ent", options.mirostat_tau, SamplingOptions::kMirostatTau,
         "the entropy that it aims at (default: 5)");
  number("--mirostat-lr", options.mirostat_eta, SamplingOptions::kMirostatEta, "how fast it learns (default: 0.1)");
  line.text(
      "--samplers", "NAMES", flags.samplers,
      "the samplers in their order, with ; between them (default: penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
      "min_p, xtc, temperature)");
  line.texts("-l,--logit-bias", "TOKEN+BIAS", kNoSeparator, flags.biases,
             "make a token likelier, as 15043+1, or less likely, as 15043-1 or 15043-inf; may be repeated");
  line.text("--grammar", "GBNF", flags.grammar, "grammar that the text must follow, with the rule `root`");
  line.text("--grammar-file", "FILE", flags.grammar_file, "the same from a file");
}

SamplingOptions sampling_options(const SamplingFlags& flags) {
  if (flags.grammar && flags.grammar_file) {
    throw UsageError("--grammar and --grammar-file both give a grammar: use one of them");
  }
  SamplingOptions options = flags.options;
  if (flags.seed >= 0) options.seed = static_cast<std::uint32_t>(flags.seed);
  for (const std::string& text : flags.biases) options.logit_bias.push_back(parse_bias(text));
  if (!flags.breakers.empty()) options.dry_sequence_breakers = flags.breakers;
  if (flags.breakers == std::vector<std::string>{"none"}) options.dry_sequence_breakers.clear();
  if (flags.samplers) {
    options.samplers = value_of("--samplers", [&] { return SamplingOptions::parse_samplers(*flags.samplers); });
  }
  value_of("sampling", [&] {
    options.validate();
    options.check_effects();
    return 0;
  });
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
