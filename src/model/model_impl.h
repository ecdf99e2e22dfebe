// The implementation of winnow::Model, which the engine reads.
#pragma once

#include <mutex>
#include <vector>

#include "gguf/gguf_file.h"
#include "model/interleaved_weights.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "winnow/model.h"

namespace winnow {

// The parts of a loaded model. Thread-safe: only layers with which no engine computes yet are changed (balance and
// interleave).
struct Model::Impl {
  Impl(const std::string& path, const ModelOptions& options);

  // Sets the factors on the queries and keys of layers [first, last). An engine calls it before all else: it reads
  // these layers' wq and wk, of which one who asks for the model's data alone needs nothing.
  void balance(int first, int last) const;

  // Interleaves the matrices of layers [first, last), and the output matrix if with_output, where that makes products
  // faster. An engine calls it before it computes with them.
  void interleave(int first, int last, bool with_output, int n_threads) const;

  // Writes a token's embedding [n_embd], times the model's embedding scale.
  void embed(Token token, float* hidden) const;

  GgufFile file;
  const Architecture& architecture;
  ModelSpec spec;
  mutable Weights weights;
  Tokenizer tokenizer;
  ModelInfo info;
  ChatTemplate chat_template;

 private:
  bool interleaves_;
  mutable std::mutex mutex_;                // guards the next three and `weights`
  mutable InterleavedWeights interleaved_;  // interleaved matrices, into which `weights` points
  mutable std::vector<bool> is_balanced_;   // [n_layer] layers that balance() has seen
  mutable std::vector<bool> is_seen_;       // [n_layer + 1] layers that interleave() has seen; the output comes last
};

}  // namespace winnow
