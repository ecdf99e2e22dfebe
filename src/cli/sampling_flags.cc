#include "cli/sampling_flags.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include "cli/text_file.h"

namespace winnow::cli {
namespace {

// No separator: the flag is given once for each value.
constexpr char kNoSeparator = '\0';

// Parses "TOKEN+BIAS" or "TOKEN-BIAS"; "TOKEN-inf" forbids the token.
LogitBias parse_bias(const std::string& text) {
  const std::size_t sign = text.find_first_of("+-", 1);
  if (sign == std::string::npos) {
    throw UsageError(
        "--logit-bias takes a token's number and what to add to its logit, e.g. 15043+1 or 15043-inf, not '" + text +
        "'");
  }
  LogitBias bias{.token = parse_integer("--logit-bias", text.substr(0, sign), 0), .bias = 0};
  const std::string size = text.substr(sign + 1);
  bias.bias = size == "inf" ? INFINITY : parse_number("--logit-bias", size);
  if (text[sign] == '-') bias.bias = -bias.bias;
  return bias;
}

// Returns a text with the escapes \n, \r, \t, \\, \" and \' replaced by what they stand for, as llama.cpp does.
std::string without_escapes(std::string_view text) {
  constexpr std::string_view kNames = "nrt\\\"'", kMeant = "\n\r\t\\\"'";
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size();
    const std::size_t which = is_escape ? kNames.find(text[i + 1]) : std::string_view::npos;
    made += which == std::string_view::npos ? text[i] : kMeant[which];
    if (which != std::string_view::npos) ++i;
  }
  return made;
}

}  // namespace

void add_sampling_flags(CommandLine& line, SamplingFlags& flags) {
  SamplingOptions& options = flags.options;
  line.integer("-s,--seed", flags.seed, -1, SamplingOptions().seed, "seed for sampling (default: -1, random)");
  const auto number = [&](const char* name, float& target, const SamplingRange& range, const char* help) {
    line.number(name, target, range.lowest, range.highest, help);
  };
  const auto integer = [&](const char* name, int& target, const SamplingRange& range, const char* help) {
    line.integer(name, target, static_cast<int>(range.lowest), static_cast<int>(range.highest), help);
  };
  number("--temp", options.temperature, SamplingOptions::kTemperature,
         "temperature; 0: greedy, always the most likely token (default: 0.8)");
  integer("--top-k", options.top_k, SamplingOptions::kTopK, "keep only the N most likely tokens; 0: all (default: 40)");
  number("--top-p", options.top_p, SamplingOptions::kTopP,
         "keep the most likely tokens up to a total probability of X; 1: all (default: 0.95)");
  number("--min-p", options.min_p, SamplingOptions::kMinP,
         "drop tokens less likely than X times the most likely one; 0: off (default: 0.05)");
  integer("--repeat-last-n", options.repeat_last_n, SamplingOptions::kRepeatLastN,
          "number of last tokens that the penalties consider (default: 64)");
  number("--repeat-penalty", options.repeat_penalty, SamplingOptions::kRepeatPenalty,
         "penalty for repeated tokens; 1: off (default: 1)");
  number("--presence-penalty", options.presence_penalty, SamplingOptions::kPresencePenalty,
         "penalty for tokens that have occurred (default: 0)");
  number("--frequency-penalty", options.frequency_penalty, SamplingOptions::kFrequencyPenalty,
         "penalty for each time that a token has occurred (default: 0)");
  number("--typical,--typical-p", options.typical_p, SamplingOptions::kTypicalP,
         "locally typical sampling: keep the tokens nearest to the expected surprise, up to a total probability of X; "
         "1: all (default: 1)");
  number("--top-nsigma,--top-n-sigma", options.top_n_sigma, SamplingOptions::kTopNSigma,
         "drop tokens whose logit is more than X standard deviations below the highest; -1: off (default: -1)");
  number("--xtc-probability", options.xtc_probability, SamplingOptions::kXtcProbability,
         "XTC: chance of dropping all likely tokens except the least likely of them; 0: off (default: 0)");
  number("--xtc-threshold", options.xtc_threshold, SamplingOptions::kXtcThreshold,
         "XTC: probability from which a token counts as likely (default: 0.1)");
  number("--dynatemp-range", options.dynatemp_range, SamplingOptions::kDynatempRange,
         "dynamic temperature: vary it with the entropy, by up to X around --temp; 0: off (default: 0)");
  number("--dynatemp-exp", options.dynatemp_exponent, SamplingOptions::kDynatempExponent,
         "dynamic temperature: exponent of the entropy (default: 1)");
  number("--dry-multiplier", options.dry_multiplier, SamplingOptions::kDryMultiplier,
         "DRY: strength of the penalty for repeated sequences; 0: off (default: 0)");
  number("--dry-base", options.dry_base, SamplingOptions::kDryBase,
         "DRY: base of the penalty's growth with each repeated token (default: 1.75)");
  integer("--dry-allowed-length", options.dry_allowed_length, SamplingOptions::kDryAllowedLength,
          "DRY: length in tokens up to which repetition is free (default: 2)");
  integer("--dry-penalty-last-n", options.dry_penalty_last_n, SamplingOptions::kDryPenaltyLastN,
          "DRY: number of last tokens to search for repetitions; -1: the model's context (default: -1)");
  line.texts(
      "--dry-sequence-breaker", "TEXT", kNoSeparator, flags.breakers,
      "DRY: text that repeated sequences do not cross, instead of newline : \" *; \\n and \\t are escapes; may be "
      "repeated; none: no such text");
  integer("--mirostat", options.mirostat, SamplingOptions::kMirostat,
          "Mirostat version, 1 or 2, instead of top-k, top-p, min-p and the like; 0: off (default: 0)");
  number("--mirostat-ent", options.mirostat_tau, SamplingOptions::kMirostatTau,
         "Mirostat: target entropy, tau (default: 5)");
  number("--mirostat-lr", options.mirostat_eta, SamplingOptions::kMirostatEta,
         "Mirostat: learning rate, eta (default: 0.1)");
  line.text("--samplers", "NAMES", flags.samplers,
            "samplers to apply, in this order, separated by ; (default: penalties, dry, top_n_sigma, top_k, typ_p, "
            "top_p, min_p, xtc, temperature); infill is for text between a beginning and an end");
  line.texts(
      "-l,--logit-bias", "TOKEN+BIAS", kNoSeparator, flags.biases,
      "add BIAS to a token's logit: 15043+1 makes it more likely, 15043-1 less, 15043-inf impossible; may be repeated");
  line.text("--grammar", "GBNF", flags.grammar, "GBNF grammar that the text must follow, with a rule `root`");
  line.text("--grammar-file", "FILE", flags.grammar_file, "read the grammar from a file");
  line.exclude("--grammar", "--grammar-file");
}

void check_penalty_range(const SamplingFlags& flags) {
  const SamplingOptions &options = flags.options, plain;
  const bool has_penalty =
      options.repeat_penalty != 1 || options.frequency_penalty != 0 || options.presence_penalty != 0;
  if (has_penalty || options.repeat_last_n == plain.repeat_last_n) return;
  throw UsageError("--repeat-last-n has no effect without --repeat-penalty, --frequency-penalty or --presence-penalty");
}

SamplingOptions sampling_options(const SamplingFlags& flags) {
  if (flags.grammar && flags.grammar_file) {
    throw UsageError("--grammar and --grammar-file both give a grammar: use one of them");
  }
  SamplingOptions options = flags.options;
  if (flags.seed >= 0) options.seed = static_cast<std::uint32_t>(flags.seed);
  for (const std::string& text : flags.biases) options.logit_bias.push_back(parse_bias(text));
  if (!flags.breakers.empty()) options.dry_sequence_breakers.clear();
  for (const std::string& text : flags.breakers) options.dry_sequence_breakers.push_back(without_escapes(text));
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

void check_with_model(const SamplingFlags& flags, const std::shared_ptr<const Model>& model) {
  for (const std::string& text : flags.biases) {
    const int n_vocab = model->info().n_vocab;
    if (parse_bias(text).token < n_vocab) continue;
    throw UsageError("--logit-bias " + text + " names no token of the model: they have the numbers from 0 to " +
                     std::to_string(n_vocab - 1));
  }
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
