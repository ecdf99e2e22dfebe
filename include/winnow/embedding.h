// Text embeddings: one vector per text, pooled from the hidden states of its tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "winnow/api.h"
#include "winnow/session.h"

namespace WINNOW_API winnow {

// Returns the pooling of a name: "mean", "cls" or "last". Throws Error(kInvalidArgument) for any other.
Pooling parse_pooling(std::string_view name);

// Returns the pooling that the model's file names, or the mean where it names none.
Pooling default_pooling(const Model& model);

// Pools the hidden states of a text's tokens one by one, in double precision (for PrefillOptions::on_hidden).
class EmbeddingPool {
 public:
  EmbeddingPool(Pooling pooling, std::int32_t n_tokens) : pooling_(pooling), n_tokens_(n_tokens) {}

  // Adds the hidden state [n_embd] of the token at `position`, 0 .. n_tokens - 1. Each token is added once.
  void add(std::int32_t position, std::span<const float> row);
  // Returns the embedding [n_embd], not normalised.
  std::vector<float> pooled() const;

 private:
  Pooling pooling_;
  std::int32_t n_tokens_;
  std::vector<double> sum_;  // [n_embd]
};

// Scales an embedding to the L2 norm 1; a vector of zeros stays as it is.
void normalise(std::span<float> embedding);

// Settings of embed().
struct EmbeddingOptions {
  std::optional<Pooling> pooling;  // not set: default_pooling
  bool is_normalised = true;       // scales the embedding to the L2 norm 1
  std::int32_t n_ctx = 0;          // most tokens; 0: the model's trained context
  ProgressCallback on_progress;
};

// Returns the embedding [n_embd] of a text. Only one layer's keys and values are held at a time. Throws what
// Session::prefill throws.
std::vector<float> embed(Engine& engine, std::span<const Token> tokens, const EmbeddingOptions& options = {});

// Returns session options for embeddings: each layer's keys and values are freed as soon as the layer is done. n_ctx is
// that of SessionOptions.
SessionOptions embedding_session(const Model& model, std::int32_t n_ctx = 0);

}  // namespace winnow
