// Choosing the next token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "winnow/model.h"

namespace winnow {

// Names and defaults as llama.cpp's; temperature <= 0 is greedy.
struct SamplingOptions {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  int repeat_last_n = 64;
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  std::uint32_t seed = 0xFFFFFFFFu;  // 0xFFFFFFFF: a random one
  std::string grammar;               // GBNF, root rule "root"; empty: none
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
