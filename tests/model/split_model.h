// A model's file in parts, as llama.cpp's splitter writes them.
#pragma once

#include <gguf.h>

#include <functional>
#include <string>
#include <vector>

namespace winnow::test {

struct SplitOptions {
  int n_parts = 3;
  bool has_tensors_in_first = true;                           // false: metadata alone, as --no-tensor-first-split does
  std::function<void(int no, gguf_context* part)> edit = {};  // of a part's metadata, last
};

// Writes STEM-00001-of-0000N.gguf and so on, and gives their paths. Throws std::runtime_error.
std::vector<std::string> write_parts(const std::string& path, const std::string& stem,
                                     const SplitOptions& options = {});

}  // namespace winnow::test
