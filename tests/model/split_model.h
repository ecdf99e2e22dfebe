// A model's file split into parts, like those of llama.cpp's splitter.
#pragma once

#include <gguf.h>

#include <functional>
#include <string>
#include <vector>

namespace winnow::test {

struct SplitOptions {
  int n_parts = 3;
  bool has_tensors_in_first = true;                           // false: only metadata, as with --no-tensor-first-split
  std::function<void(int no, gguf_context* part)> edit = {};  // edits a part's metadata at the end
};

// Writes STEM-00001-of-0000N.gguf and so on, and returns their paths. Throws std::runtime_error.
std::vector<std::string> write_parts(const std::string& path, const std::string& stem,
                                     const SplitOptions& options = {});

}  // namespace winnow::test
