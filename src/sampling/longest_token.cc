#include "sampling/longest_token.h"

#include <algorithm>

#include "model/model_impl.h"

namespace winnow {

std::size_t longest_token_bytes(const Model& model) {
  const Tokenizer& tokenizer = model.impl().tokenizer;
  std::size_t longest = 4;  // a character that is no token may become the unknown one
  if (!tokenizer.has_tokens()) longest = tokenizer.token_text(0).size();  // throws
  for (Token token = 0; token < tokenizer.n_vocab(); ++token) {
    longest = std::max(longest, tokenizer.token_text(token, true).size());
  }
  return longest;
}

}  // namespace winnow
