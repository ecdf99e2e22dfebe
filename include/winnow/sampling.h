// Choosing the next token.
#pragma once

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
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: a random one
  std::string grammar;               // GBNF, root rule "root"; empty: none
  GrammarStart grammar_start;

  static constexpr SamplingRange kTemperature{0, 100}, kTopK{-1, 1 << 24}, kTopP{0, 1}, kMinP{0, 1},
      kRepeatLastN{0, 1 << 24}, kRepeatPenalty{1e-4, 1e4}, kFrequencyPenalty{-1e4, 1e4}, kPresencePenalty{-1e4, 1e4};

  // Throws Error(kInvalidArgument) naming the first number outside its range. The grammar is for Sampler to check.
  void validate() const;
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
