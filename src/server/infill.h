// Prompts for models that were trained to fill in the middle between two texts.
#pragma once

#include <cstddef>
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

  std::size_t n_bytes() const;
};

// Returns the prompt's tokens. Throws Error(kUnsupported) for a model without the tokens for it.
std::vector<Token> infill_tokens(const Model& model, const InfillText& text);

}  // namespace winnow::server
