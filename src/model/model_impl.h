// What is behind winnow::Model; read by the engine.
#pragma once

#include "model/chat_template.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "winnow/model.h"

namespace winnow {

// Immutable, thread-safe.
struct Model::Impl {
  Impl(const std::string& path, const ModelOptions& options);

  GgufFile file;
  const Architecture& architecture;
  ModelSpec spec;
  Weights weights;
  Tokenizer tokenizer;
  ModelInfo info;
  ChatTemplate chat_template;
};

}  // namespace winnow
