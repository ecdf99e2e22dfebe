// What is behind winnow::Model; read by the engine.
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

// Thread-safe: nothing changes but layers that nobody computes with yet.
struct Model::Impl {
  Impl(const std::string& path, const ModelOptions& options);

  // Before an engine computes with layers [first, last), and with the output matrix: has their matrices interleaved
  // where that makes products faster.
  void interleave(int first, int last, bool with_output, int n_threads) const;

  GgufFile file;
  const Architecture& architecture;
  ModelSpec spec;
  mutable Weights weights;
  Tokenizer tokenizer;
  ModelInfo info;
  ChatTemplate chat_template;

 private:
  bool interleaves_;
  mutable std::mutex mutex_;                // of what follows
  mutable InterleavedWeights interleaved_;  // what `weights` points into
  mutable std::vector<bool> is_seen_;       // [n_layer + 1], the output's last
};

}  // namespace winnow
