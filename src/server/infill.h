// What belongs between two texts: prompts for models that were trained to fill in the middle.
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
  std::vector<std::pair<std::string, std::string>> files;  // name and text of what else may be of use
  std::string begun;                                       // how the answer begins

  std::size_t n_bytes() const;
};

// Throws Error(kUnsupported) for a model without the tokens for it.
std::vector<Token> infill_tokens(const Model& model, const InfillText& text);

}  // namespace winnow::server
