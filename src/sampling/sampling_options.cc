// The ranges of the sampling options, and the check which of them have an effect together.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow {
namespace {

[[noreturn]] void refuse_option(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

std::string joined_names() {
  std::string text;
  for (const std::string& name : SamplingOptions::sampler_names()) text += (text.empty() ? "" : ";") + name;
  return text;
}

void validate_samplers(const std::vector<std::string>& names) {
  const std::vector<std::string>& known = SamplingOptions::sampler_names();
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      refuse_option("there is no sampler '" + name + "': give names of " + joined_names());
    }
    if (!seen.insert(name).second) refuse_option("the sampler '" + name + "' is named twice: name each once");
  }
}

void validate_breakers(const std::vector<std::string>& breakers) {
  if (breakers.size() > SamplingOptions::kMostBreakers) {
    refuse_option("DRY has " + std::to_string(breakers.size()) + " sequence breakers: give at most " +
                  std::to_string(SamplingOptions::kMostBreakers));
  }
  for (const std::string& breaker : breakers) {
    const bool has_zero = breaker.find('\0') != std::string::npos;
    if (breaker.empty() || breaker.size() > SamplingOptions::kMostBreakerBytes || has_zero) {
      refuse_option("a sequence breaker of DRY must have 1 to " + std::to_string(SamplingOptions::kMostBreakerBytes) +
                    " bytes, none of them 0");
    }
  }
}

}  // namespace

const std::vector<std::string>& SamplingOptions::default_samplers() {
  static const std::vector<std::string> kNames = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                                  "top_p",     "min_p", "xtc",         "temperature"};
  return kNames;
}

const std::vector<std::string>& SamplingOptions::sampler_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = default_samplers();
    names.emplace_back("infill");
    return names;
  }();
  return kNames;
}

std::vector<std::string> SamplingOptions::parse_samplers(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
    if (names.size() > sampler_names().size()) {
      refuse_option("there are only " + std::to_string(sampler_names().size()) + " samplers: give names of " +
                    joined_names());
    }
  }
  validate_samplers(names);
  return names;
}

std::string SamplingOptions::sampler_of_letter(char letter) {
  static constexpr std::string_view kLetters = "edskypmxti";  // letters of sampler_names(), in their order
  const std::size_t i = kLetters.find(letter);
  return i == std::string_view::npos ? "" : sampler_names()[i];
}

void SamplingOptions::validate() const {
  const auto check = [](const char* name, auto value, const SamplingRange& range, const char* neutral) {
    using Value = decltype(value);
    // The comparison is false for NaN, too.
    if (value >= static_cast<Value>(range.lowest) && value <= static_cast<Value>(range.highest)) return;
    refuse_option(std::string(name) + " is " + format_number(value) + ": give a number from " +
                  format_number(range.lowest) + " to " + format_number(range.highest) + " (" + neutral + ")");
  };
  check("the temperature", temperature, kTemperature, "0: always the likeliest token");
  check("top-k", top_k, kTopK, "0: all tokens");
  check("top-p", top_p, kTopP, "1: all tokens");
  check("min-p", min_p, kMinP, "0: all tokens");
  check("the number of tokens for penalties", repeat_last_n, kRepeatLastN, "0: no penalties");
  check("the repeat penalty", repeat_penalty, kRepeatPenalty, "1: none");
  check("the frequency penalty", frequency_penalty, kFrequencyPenalty, "0: none");
  check("the presence penalty", presence_penalty, kPresencePenalty, "0: none");
  check("typical-p", typical_p, kTypicalP, "1: all tokens");
  check("top-n-sigma", top_n_sigma, kTopNSigma, "-1: all tokens");
  check("the probability of XTC", xtc_probability, kXtcProbability, "0: never");
  check("the threshold of XTC", xtc_threshold, kXtcThreshold, "above 0.5: never");
  check("the range of the dynamic temperature", dynatemp_range, kDynatempRange, "0: none");
  check("the exponent of the dynamic temperature", dynatemp_exponent, kDynatempExponent, "1: linear");
  check("the multiplier of DRY", dry_multiplier, kDryMultiplier, "0: no penalty");
  check("the base of DRY", dry_base, kDryBase, "1.75 is usual");
  check("the allowed length of DRY", dry_allowed_length, kDryAllowedLength, "2 is usual");
  check("the number of tokens for DRY", dry_penalty_last_n, kDryPenaltyLastN, "-1: the context");
  check("the number of tokens to keep", min_keep, kMinKeep, "1: one");
  check("mirostat", mirostat, kMirostat, "0: none");
  check("mirostat's tau", mirostat_tau, kMirostatTau, "5 is usual");
  check("mirostat's eta", mirostat_eta, kMirostatEta, "0.1 is usual");
  validate_samplers(samplers);
  validate_breakers(dry_sequence_breakers);
  if (logit_bias.size() > kMostBiases) {
    refuse_option("there are " + std::to_string(logit_bias.size()) + " logit biases: give at most " +
                  std::to_string(kMostBiases));
  }
  for (const LogitBias& bias : logit_bias) {
    // -infinity is allowed: it bans the token.
    if (std::isnan(bias.bias) || bias.bias > 1e6f) {
      refuse_option("a logit bias is " + format_number(bias.bias) + ": give a number up to 1e6");
    }
  }
}

std::size_t SamplingOptions::n_looked_back(std::size_t n_tokens) const {
  std::size_t n = 0;
  if (repeat_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0) {
    n = static_cast<std::size_t>(repeat_last_n);
  }
  if (dry_multiplier > 0) {
    n = dry_penalty_last_n < 0 ? n_tokens : std::max(n, static_cast<std::size_t>(dry_penalty_last_n));
  }
  return std::min(n, n_tokens);
}

void SamplingOptions::check_effects() const {
  const SamplingOptions plain;
  struct Use {
    const char* name;  // name of the option
    bool is_set;
    const char* sampler;  // sampler that it belongs to
  };
  const auto is_in_use = [&](const char* sampler) {
    return std::find(samplers.begin(), samplers.end(), sampler) != samplers.end();
  };
  const std::vector<Use> uses = {
      {"typical-p", typical_p < 1, "typ_p"},
      {"top-n-sigma", top_n_sigma > 0, "top_n_sigma"},
      {"the probability of XTC", xtc_probability > 0, "xtc"},
      {"the range of the dynamic temperature", dynatemp_range > 0, "temperature"},
      {"top-k", top_k != plain.top_k, "top_k"},
      {"top-p", top_p != plain.top_p, "top_p"},
      {"min-p", min_p != plain.min_p, "min_p"},
      {"the multiplier of DRY", dry_multiplier > 0, "dry"},
      {"the repeat penalty", repeat_penalty != 1, "penalties"},
      {"the frequency penalty", frequency_penalty != 0, "penalties"},
      {"the presence penalty", presence_penalty != 0, "penalties"},
  };
  for (const Use& use : uses) {
    const std::string sampler = use.sampler;
    const bool is_for_all = sampler == "penalties" || sampler == "dry";
    if (!use.is_set) continue;
    if (!is_in_use(use.sampler) && (is_for_all || mirostat == 0)) {
      refuse_option(std::string(use.name) + " has no effect: the samplers do not include '" + sampler + "'");
    }
    if (mirostat != 0 && !is_for_all && sampler != "temperature") {
      refuse_option(std::string(use.name) + " has no effect with mirostat: leave one of them out");
    }
  }
  const bool is_greedy = temperature <= 0;
  const auto needs = [](bool is_set, bool has_it, const std::string& name, const std::string& other) {
    if (is_set && !has_it) refuse_option(name + " has no effect without " + other);
  };
  const std::string warmth = "a temperature above 0";
  needs(mirostat != 0, !is_greedy, "mirostat", warmth);
  needs(typical_p < 1, !is_greedy, "typical-p", warmth);
  needs(top_n_sigma > 0, !is_greedy, "top-n-sigma", warmth);
  needs(xtc_probability > 0, !is_greedy, "XTC", warmth);
  needs(dynatemp_range > 0, !is_greedy, "the range of the dynamic temperature", warmth);
  needs(xtc_threshold != plain.xtc_threshold, xtc_probability > 0, "the threshold of XTC", "a probability of XTC");
  needs(dynatemp_exponent != plain.dynatemp_exponent, dynatemp_range > 0, "the exponent of the dynamic temperature",
        "a range of it");
  const bool has_dry = dry_multiplier > 0;
  const std::string multiplier = "a multiplier of DRY";
  needs(dry_base != plain.dry_base, has_dry, "the base of DRY", multiplier);
  needs(dry_allowed_length != plain.dry_allowed_length, has_dry, "the allowed length of DRY", multiplier);
  needs(dry_penalty_last_n != plain.dry_penalty_last_n, has_dry, "the number of tokens for DRY", multiplier);
  needs(dry_sequence_breakers != plain.dry_sequence_breakers, has_dry, "the sequence breakers of DRY", multiplier);
  needs(mirostat_tau != plain.mirostat_tau, mirostat != 0, "mirostat's tau", "mirostat");
  needs(mirostat_eta != plain.mirostat_eta, mirostat != 0, "mirostat's eta", "mirostat");
}

}  // namespace winnow
