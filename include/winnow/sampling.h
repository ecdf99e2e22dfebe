// Sampling: the choice of the next token from logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "winnow/api.h"
#include "winnow/model.h"

namespace WINNOW_API winnow {

// The range of an option's value, both ends included.
struct SamplingRange {
  double lowest, highest;
};

// The place in an answer from which a grammar holds.
struct GrammarStart {
  bool is_lazy = false;  // false: from the answer's beginning
  // Not lazy: the end of the prompt, which the grammar has already matched when the answer begins. Lazy: it only tells
  // if the answer begins inside thinking.
  std::string prefix;
  // Lazy: the answer is free until one of these words or a match of one of these patterns (ECMAScript) appears. The
  // grammar begins with the word, or with the match, or with the match's first group if it has groups.
  std::vector<std::string> words, patterns;
  // Words and patterns do not count between thinking_begin and one of thinking_ends.
  std::string thinking_begin;
  std::vector<std::string> thinking_ends;
};

// A number that is added to a token's logit before everything else; -infinity bans the token.
struct LogitBias {
  Token token;
  float bias;
};

// Settings of a sampler. Names and defaults are llama.cpp's.
struct SamplingOptions {
  float temperature = 0.8f;  // 0: greedy
  int top_k = 40;            // likeliest tokens to keep; 0 or -1: all
  float top_p = 0.95f;       // keeps the likeliest tokens of this total probability (nucleus); 1: all
  float min_p = 0.05f;       // keeps tokens of at least this fraction of the likeliest one's probability; 0: all
  int repeat_last_n = 64;    // last tokens to which the three penalties apply; 0: no penalties
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float typical_p = 1.0f;        // locally typical sampling; 1: all tokens
  float top_n_sigma = -1.0f;     // keeps logits within so many standard deviations of the largest; 0 or less: all
  float xtc_probability = 0.0f;  // chance that XTC removes the likeliest tokens; 0: never
  float xtc_threshold = 0.1f;    // probability from which on XTC may remove a token; above 0.5: never
  float dynatemp_range = 0.0f;   // dynamic temperature: its largest distance from `temperature`; 0: fixed
  float dynatemp_exponent = 1.0f;
  float dry_multiplier = 0.0f;  // strength of DRY, a penalty of repeated sequences; 0: none
  float dry_base = 1.75f;
  int dry_allowed_length = 2;   // length in tokens up to which DRY does not penalise a repetition
  int dry_penalty_last_n = -1;  // last tokens in which DRY looks for repetitions; -1: the model's context; 0: none
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  int min_keep = 1;  // least number of tokens that typical_p, top_p, min_p and XTC leave; 0 is 1
  int mirostat = 0;  // 1 or 2: that version of Mirostat, in place of all samplers but penalties, DRY and temperature
  float mirostat_tau = 5.0f, mirostat_eta = 0.1f;
  std::vector<LogitBias> logit_bias;
  // Names of sampler_names(), in the order in which they are applied. The draw comes after them.
  std::vector<std::string> samplers = default_samplers();
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: a random seed
  std::string grammar;               // GBNF with the root rule "root"; empty: none
  GrammarStart grammar_start;

  static constexpr SamplingRange kTemperature{0, 100}, kTopK{-1, 1 << 24}, kTopP{0, 1}, kMinP{0, 1},
      kRepeatLastN{0, 1 << 24}, kRepeatPenalty{1e-4, 1e4}, kFrequencyPenalty{-1e4, 1e4}, kPresencePenalty{-1e4, 1e4},
      kTypicalP{0, 1}, kTopNSigma{-1, 1e4}, kXtcProbability{0, 1}, kXtcThreshold{0, 1}, kDynatempRange{0, 100},
      kDynatempExponent{0, 1e4}, kDryMultiplier{0, 1e4}, kDryBase{0, 1e4}, kDryAllowedLength{0, 1 << 20},
      kDryPenaltyLastN{-1, 1 << 24}, kMinKeep{0, 1 << 24}, kMirostat{0, 2}, kMirostatTau{0, 1e4}, kMirostatEta{0, 1e4};
  static constexpr std::size_t kMostBreakers = 16, kMostBreakerBytes = 40, kMostBiases = 4096;

  // Returns the default samplers, in llama.cpp's order: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc,
  // temperature.
  static const std::vector<std::string>& default_samplers();
  // Returns all samplers: the default ones and "infill", for text between a beginning and an end. Infill ends the
  // answer where an end token is likely compared with the number of other candidates, and keeps of tokens with a common
  // beginning the shortest one (llama_sampler_init_infill).
  static const std::vector<std::string>& sampler_names();
  // Reads names separated by ';', e.g. "top_k;temperature". Throws Error(kInvalidArgument) for an unknown one.
  static std::vector<std::string> parse_samplers(const std::string& text);
  // Returns the sampler that llama.cpp writes as one letter ('k': top_k), or "" for any other letter.
  static std::string sampler_of_letter(char letter);

  // Throws Error(kInvalidArgument) naming the first number outside its range. The grammar is checked by Sampler.
  void validate() const;
  // Throws Error(kInvalidArgument) for an option that is set and has no effect because of another.
  void check_effects() const;
  // Returns how many of the last of n_tokens tokens before an answer the penalties and DRY look at: those are given to
  // Sampler::accept.
  std::size_t n_looked_back(std::size_t n_tokens) const;
};

// A sampler of one sequence, with the state of its penalties and its grammar. Not thread-safe.
class Sampler {
 public:
  // Throws Error(kInvalidArgument) for options out of range or a grammar that does not parse.
  Sampler(std::shared_ptr<const Model> model, const SamplingOptions& options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Chooses a token from logits [n_vocab], adds it to the state of penalties and grammar, and returns it.
  Token sample(std::span<const float> logits);
  // Adds a token that was not sampled to the penalties' state, e.g. one of the prompt.
  void accept(Token token);
  // Returns the seed in use, also where it was chosen at random.
  std::uint32_t seed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
