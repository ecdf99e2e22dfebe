// Prompts for models that were trained to fill in the middle between two texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "winnow/model.h"

namespace winnow::server {

struct InfillText {
  std::string prefix, suffix;
  std::vector<std::pair<std::string, std::string>> files;  // names and texts of other files that may be of use
  std::string begun;                                       // the beginning of the answer
};

// Returns the prompt's tokens. If there are more than `most`, only the end of the prefix (three quarters of the room,
// or what the suffix leaves), the beginning of the suffix and the end of the files are in it. Throws
// Error(kUnsupported) for a model without the tokens for it.
std::vector<Token> infill_tokens(const Model& model, const InfillText& text, std::size_t most = SIZE_MAX);

// Removes what is too far from the place to fill in to be among `most` tokens in any case, so that it is not tokenised.
void shorten(const Model& model, std::size_t most, InfillText& text);

}  // namespace winnow::server
