// Runs a model of random weights for every architecture and for its variants, against libllama and against itself. The
// test of architectures asserts the results, and the table of docs/models.md shows them.
#pragma once

#include <string>
#include <vector>

#include "model/tiny_architectures.h"
#include "model/tiny_model.h"

namespace winnow::test {

struct ArchitectureVariant {
  std::string name;  // the architecture and what is particular to the variant
  TinyModelOptions options;
  int n_tokens = 150;  // more than every sliding window and original context
};

std::vector<ArchitectureVariant> architecture_variants();

struct ArchitectureResult {
  std::string layers;  // "2 full, 3 of window 24"
  double range = 0;    // of libllama's logits, smallest to largest
  double prefill = 0;  // largest difference of a logit to libllama's, in parts of the range
  double decode = 0;
};

// Runs the variant in winnow and in libllama. Throws std::runtime_error if libllama refuses the file.
ArchitectureResult compare_with_libllama(const ArchitectureVariant& variant);

}  // namespace winnow::test
