// The prompts of a completion: texts or tokens, one or several, with a suffix or without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/fields.h"
#include "winnow/generate.h"

namespace winnow::server {

struct CompletionPrompts {
  std::vector<PromptTokens> tokens;  // at least one
  std::vector<std::string> echoes;   // with "echo": the prompts' texts
};

// Returns the prompts of a completion. `document` goes before each of them and may be empty. Throws ApiError(400), and
// Error for prompts that cannot fit n_ctx tokens or a suffix that the model has no tokens for.
CompletionPrompts parse_prompts(const Fields& fields, const Model& model, const std::string& document,
                                std::int32_t n_ctx);

}  // namespace winnow::server
