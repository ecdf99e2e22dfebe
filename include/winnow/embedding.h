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

// "mean", "cls", "last". Throws Error(kInvalidArgument).
Pooling parse_pooling(std::string_view name);

// The model file's own, else the mean.
Pooling default_pooling(const Model& model);

// Pools hidden states as they come (PrefillOptions::on_hidden), in double precision.
class EmbeddingPool {
 public:
  EmbeddingPool(Pooling pooling, std::int32_t n_tokens) : pooling_(pooling), n_tokens_(n_tokens) {}

  // row: [n_embd], of the token at `position` of 0 .. n_tokens - 1; each is added once.
  void add(std::int32_t position, std::span<const float> row);
  std::vector<float> pooled() const;  // [n_embd]

 private:
  Pooling pooling_;
  std::int32_t n_tokens_;
  std::vector<double> sum_;  // [n_embd]
};

// To the length 1; zeros stay.
void normalise(std::span<float> embedding);

struct EmbeddingOptions {
  std::optional<Pooling> pooling;  // default: default_pooling
  bool is_normalised = true;       // to the length 1
  std::int32_t n_ctx = 0;          // most tokens; 0: the model's trained context
  ProgressCallback on_progress;
};

// Returns the embedding [n_embd] of a text. The keys and values of one layer at a time are held. Throws what
// Session::prefill throws.
std::vector<float> embed(Engine& engine, std::span<const Token> tokens, const EmbeddingOptions& options = {});

// Session options for embeddings: each layer's keys and values are freed as soon as the layer is done.
//   n_ctx: as SessionOptions has it
SessionOptions embedding_session(const Model& model, std::int32_t n_ctx = 0);

}  // namespace winnow
