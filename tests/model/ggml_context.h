// A context of ggml that is freed with its owner.
#pragma once

#include <ggml.h>

#include <memory>

namespace winnow::test {

struct ContextDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
using ContextPointer = std::unique_ptr<ggml_context, ContextDeleter>;

}  // namespace winnow::test
