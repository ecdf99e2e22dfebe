// The special tokens of models that were trained to fill in the middle.
#pragma once

#include "text/tokenizer.h"

namespace winnow {

// The tokens of a vocabulary; -1 for one that it does not have.
struct InfillTokens {
  Token prefix = -1, suffix = -1, middle = -1;
  Token separator = -1;  // comes before each file of a prompt with several

  bool exist() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

// Returns the tokens that the tokenizer's file names.
InfillTokens find_infill_tokens(const Tokenizer& tokenizer);

}  // namespace winnow
