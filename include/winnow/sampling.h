// Choosing the next token.
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

// What a number of the options may be, both ends included.
struct SamplingRange {
  double lowest, highest;
};

// Where in an answer a grammar begins to hold.
struct GrammarStart {
  bool is_lazy = false;
  // Not lazy: what the prompt ends with and the grammar begins with.
  std::string prefix;
  // Lazy: the answer is free until one of these texts, which the grammar begins with, or patterns (of ECMAScript; from
  // their first group on, if they have one) appears. `prefix` is then only looked at for thinking.
  std::vector<std::string> words, patterns;
  // None of them counts between these two.
  std::string thinking_begin;
  std::vector<std::string> thinking_ends;
};

// Added to a token's logit before everything else; -infinity: never.
struct LogitBias {
  Token token;
  float bias;
};

// Names and defaults as llama.cpp's.
struct SamplingOptions {
  float temperature = 0.8f;  // 0: greedy
  int top_k = 40;            // 0 or -1: all
  float top_p = 0.95f;       // 1: all
  float min_p = 0.05f;       // 0: all
  int repeat_last_n = 64;    // tokens that the penalties look at; 0: no penalties
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float typical_p = 1.0f;        // 1: all
  float top_n_sigma = -1.0f;     // 0 or less: all
  float xtc_probability = 0.0f;  // 0: never
  float xtc_threshold = 0.1f;    // above 0.5: never
  float dynatemp_range = 0.0f;   // the temperature is at most so far from the one above; 0: that one
  float dynatemp_exponent = 1.0f;
  float dry_multiplier = 0.0f;  // 0: no penalty of repeated sequences
  float dry_base = 1.75f;
  int dry_allowed_length = 2;   // tokens that may be repeated freely
  int dry_penalty_last_n = -1;  // tokens that are looked at; -1: the model's context; 0: none
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  int min_keep = 1;  // tokens that typical_p, top_p, min_p and XTC leave at least; 0 is 1
  int mirostat = 0;  // 1 or 2: that version of Mirostat, instead of all below the penalties but the temperature
  float mirostat_tau = 5.0f, mirostat_eta = 0.1f;
  std::vector<LogitBias> logit_bias;
  // In their order; names of sampler_names(). The draw comes after them.
  std::vector<std::string> samplers = default_samplers();
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: a random one
  std::string grammar;               // GBNF, root rule "root"; empty: none
  GrammarStart grammar_start;

  static constexpr SamplingRange kTemperature{0, 100}, kTopK{-1, 1 << 24}, kTopP{0, 1}, kMinP{0, 1},
      kRepeatLastN{0, 1 << 24}, kRepeatPenalty{1e-4, 1e4}, kFrequencyPenalty{-1e4, 1e4}, kPresencePenalty{-1e4, 1e4},
      kTypicalP{0, 1}, kTopNSigma{-1, 1e4}, kXtcProbability{0, 1}, kXtcThreshold{0, 1}, kDynatempRange{0, 100},
      kDynatempExponent{0, 1e4}, kDryMultiplier{0, 1e4}, kDryBase{0, 1e4}, kDryAllowedLength{0, 1 << 20},
      kDryPenaltyLastN{-1, 1 << 24}, kMinKeep{0, 1 << 24}, kMirostat{0, 2}, kMirostatTau{0, 1e4}, kMirostatEta{0, 1e4};
  static constexpr std::size_t kMostBreakers = 16, kMostBreakerBytes = 40, kMostBiases = 4096;

  // In llama.cpp's order: penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature.
  static const std::vector<std::string>& default_samplers();
  // These and "infill", for what stands between two texts: it ends the answer where the end is likely beside the number
  // of other tokens, and leaves of tokens that begin alike the shortest one (llama_sampler_init_infill).
  static const std::vector<std::string>& sampler_names();
  // Names with ';' between them, as "top_k;temperature". Throws Error(kInvalidArgument).
  static std::vector<std::string> parse_samplers(const std::string& text);
  // The sampler that llama.cpp writes as one letter ('k': top_k); "" where that is none of these.
  static std::string sampler_of_letter(char letter);

  // Throws Error(kInvalidArgument) naming the first number outside its range. The grammar is for Sampler to check.
  void validate() const;
  // Throws Error(kInvalidArgument) for one that is set and has no effect because of another.
  void check_effects() const;
};

// Not thread-safe; one per sequence.
class Sampler {
 public:
  // Throws Error(kInvalidArgument) for options out of range or a grammar that does not parse.
  Sampler(std::shared_ptr<const Model> model, const SamplingOptions& options);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Chooses from logits [n_vocab] and remembers the choice (penalties, grammar).
  Token sample(std::span<const float> logits);
  // Remembers a token that was not sampled (the prompt's, for the penalties).
  void accept(Token token);
  std::uint32_t seed() const;  // the one in use

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
