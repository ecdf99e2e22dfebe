// The tokens of models that were trained to fill in the middle.
#pragma once

#include "text/tokenizer.h"

namespace winnow {

// -1: there is no such token.
struct InfillTokens {
  Token prefix = -1, suffix = -1, middle = -1;
  Token separator = -1;  // before a file of others

  bool exist() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

InfillTokens find_infill_tokens(const Tokenizer& tokenizer);

}  // namespace winnow
