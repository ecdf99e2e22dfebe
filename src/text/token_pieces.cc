#include "text/token_pieces.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer.h"

namespace winnow {

TokenPieces::TokenPieces(const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, Token>> all;
  for (Token token = 0; token < tokenizer.n_vocab(); ++token) {
    std::string text = tokenizer.token_text(token, true);
    longest = std::max(longest, text.size());
    if (tokenizer.is_end_of_generation(token)) {
      ends.push_back(token);
      continue;
    }
    if (!text.empty()) all.emplace_back(std::move(text), token);
  }
  std::sort(all.begin(), all.end());
  std::string_view before;
  begin.push_back(0);
  for (const auto& [text, token] : all) {
    const auto differs = std::mismatch(before.begin(), before.end(), text.begin(), text.end()).second;
    n_shared.push_back(static_cast<std::uint32_t>(differs - text.begin()));
    tokens.push_back(token);
    bytes += text;
    begin.push_back(static_cast<std::uint32_t>(bytes.size()));
    before = text;
  }
}

}  // namespace winnow
