// Tokens: the numbers that stand for pieces of text.
#pragma once

#include <cstdint>

#include "winnow/api.h"

namespace WINNOW_API winnow {

using Token = std::int32_t;

// A token with a meaning of its own.
enum class SpecialToken {
  kBegin,    // before a text
  kEnd,      // after a text
  kNewline,  // a line's end, which is not special in most vocabularies
  // The next three are for models that were trained to fill in the middle between a beginning and an end.
  kInfillPrefix,  // before the beginning
  kInfillSuffix,  // before the end
  kInfillMiddle,  // before the middle, which the model writes
};

}  // namespace winnow
