#include "study/passages.h"

#include <random>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "winnow/error.h"

namespace winnow {
namespace {

// Returns the number of bytes before the first that a character may begin with.
std::size_t begin_of_character(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && continues_character(text[begin])) ++begin;
  return begin;
}

}  // namespace

std::string passage_text(const Model& model, std::span<const Token> tokens) {
  const std::string text = model.detokenize(tokens);
  const std::size_t begin = begin_of_character(text);
  return text.substr(begin, text.size() - incomplete_tail(text) - begin);
}

std::vector<std::string> token_texts(const Model& model, std::span<const Token> tokens) {
  std::vector<std::string> texts;
  std::string pending;
  for (const Token token : tokens) {
    pending += model.token_text(token, true);
    if (texts.empty()) pending.erase(0, begin_of_character(pending));
    const std::size_t n = pending.size() - incomplete_tail(pending);
    texts.push_back(pending.substr(0, n));
    pending.erase(0, n);
  }
  return texts;
}

std::vector<std::string> choose_passages(const Model& model, std::span<const std::string> texts, int n, int n_tokens,
                                         std::uint64_t seed) {
  std::vector<std::vector<Token>> tokens;
  std::vector<std::pair<std::size_t, std::size_t>> starts;  // text, first token
  for (const std::string& text : texts) {
    tokens.push_back(model.tokenize(text, false, false));
    for (std::size_t first = 0; first + static_cast<std::size_t>(n_tokens) <= tokens.back().size();
         first += static_cast<std::size_t>(n_tokens)) {
      starts.emplace_back(tokens.size() - 1, first);
    }
  }
  if (starts.size() < static_cast<std::size_t>(n)) {
    throw Error(ErrorCode::kInvalidArgument, "the text has only " + std::to_string(starts.size()) + " passages of " +
                                                 std::to_string(n_tokens) + " tokens, but " + std::to_string(n) +
                                                 " are needed: give more text, fewer samples or shorter ones");
  }
  // std::shuffle and the standard distributions are not used: their results differ between standard libraries.
  std::mt19937_64 random(seed);
  std::vector<std::string> passages;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    std::swap(starts[i], starts[i + random() % (starts.size() - i)]);
    const auto [text, first] = starts[i];
    passages.push_back(passage_text(model, std::span(tokens[text]).subspan(first, static_cast<std::size_t>(n_tokens))));
  }
  return passages;
}

}  // namespace winnow
