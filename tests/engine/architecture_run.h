// One model of random weights of every architecture and of its variants, run against libllama and against itself: what
// the test of architectures asserts and the table of docs/models.md shows.
#pragma once

#include <string>
#include <vector>

#include "model/tiny_architectures.h"
#include "model/tiny_model.h"

namespace winnow::test {

struct ArchitectureVariant {
  std::string name;  // of the architecture, and of what is particular
  TinyModelOptions options;
  int n_tokens = 150;  // beyond every window and every original context
};

std::vector<ArchitectureVariant> architecture_variants();

struct ArchitectureResult {
  std::string layers;  // "2 full, 3 of window 24"
  double range = 0;    // of libllama's logits, smallest to largest
  double prefill = 0;  // largest difference of a logit to libllama's, in parts of the range
  double decode = 0;
};

// Throws std::runtime_error where libllama refuses the file.
ArchitectureResult compare_with_libllama(const ArchitectureVariant& variant);

}  // namespace winnow::test
