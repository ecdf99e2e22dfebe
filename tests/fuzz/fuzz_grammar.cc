// Grammars, parsed and followed. An input's first byte is the number of bytes at its end that choose tokens; the bytes
// between are the grammar. The matcher must report the same for all tokens together as for each alone, and accept only
// allowed tokens. Limits are lower than the product's, since grammars that reach them would take most of the time.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/tiny_model.h"
#include "text/grammar.h"
#include "text/grammar_matcher.h"
#include "text/tokenizer.h"
#include "winnow/error.h"

namespace {

using namespace winnow;  // NOLINT(google-build-using-namespace)

void follow(GrammarMatcher& matcher, const Tokenizer& tokenizer, const std::uint8_t* choices, std::size_t n_choices) {
  for (std::size_t i = 0; i < n_choices; ++i) {
    const std::vector<bool> allowed = matcher.allowed();
    std::vector<Token> may_come;
    for (Token token = 0; token < tokenizer.n_vocab(); ++token) {
      if (allowed[static_cast<std::size_t>(token)]) may_come.push_back(token);
    }
    const auto any = static_cast<Token>(choices[i] % tokenizer.n_vocab());
    const bool is_allowed = allowed[static_cast<std::size_t>(any)];
    if (matcher.allows(any) != is_allowed) __builtin_trap();
    if (!is_allowed) {
      bool is_refused = false;
      try {
        matcher.accept(any);
      } catch (const Error&) {
        is_refused = true;
      }
      if (!is_refused) __builtin_trap();
    }
    if (may_come.empty()) return;
    const Token token = may_come[choices[i] % may_come.size()];
    matcher.accept(token);
    if (tokenizer.is_end_of_generation(token)) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const test::TinyModel file({.n_layer = 1});
  static const Tokenizer tokenizer(file.path());
  constexpr std::size_t kMostChoices = 8, kMostSteps = 10'000;
  constexpr GrammarLimits kLimits{.n_rules = 500, .n_symbols = 10'000};
  if (size == 0) return 0;
  const std::size_t n_choices = std::min<std::size_t>(data[0] % (kMostChoices + 1), size - 1);
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1 - n_choices);
  try {
    GrammarMatcher matcher(std::make_shared<const Grammar>(parse_grammar(text, tokenizer.vocab(), kLimits)), tokenizer,
                           kMostSteps);
    follow(matcher, tokenizer, data + size - n_choices, n_choices);
  } catch (const Error&) {
  }
  return 0;
}
