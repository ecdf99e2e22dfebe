// The choice of the next token with libllama's samplers. If a grammar does not allow the first choice, a second one is
// made among the tokens that it allows.
#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/model_impl.h"
#include "sampling/sampler_chain.h"
#include "text/grammar_matcher.h"
#include "text/grammar_trigger.h"
#include "text/tokenizer.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

// libllama's default seed, which asks for a random one.
constexpr std::uint32_t kRandomSeed = LLAMA_DEFAULT_SEED;

std::optional<GrammarMatcher> make_matcher(const Tokenizer& tokenizer, const std::string& grammar,
                                           const GrammarStart& start) {
  if (grammar.empty()) return std::nullopt;
  if (!tokenizer.has_tokens()) {
    throw Error(ErrorCode::kUnsupported,
                "the model file has no tokenizer, which a grammar needs: leave the grammar out");
  }
  GrammarMatcher matcher(std::make_shared<const Grammar>(parse_grammar(grammar, tokenizer.vocab())), tokenizer);
  if (!start.is_lazy && !matcher.accept_text(start.prefix)) {
    refuse("the grammar does not allow the end of the prompt: change one of them");
  }
  return matcher;
}

std::uint32_t choose_seed(std::uint32_t seed) {
  if (seed != kRandomSeed) return seed;
  std::random_device device;
  do {
    seed = static_cast<std::uint32_t>(device());
  } while (seed == kRandomSeed);
  return seed;
}

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

bool is_possible(const llama_token_data& candidate) { return candidate.logit > kImpossible; }

std::vector<Token> suppressed_candidates(const Tokenizer& tokenizer, int n_candidates) {
  std::vector<Token> suppressed;
  for (const Token token : tokenizer.suppressed_tokens()) {
    if (token < n_candidates) suppressed.push_back(token);
  }
  return suppressed;
}

}  // namespace

struct Sampler::Impl {
  std::shared_ptr<const Model> model;  // keeps the vocabulary alive
  int n_vocab;                         // length of the logits
  int n_candidates;                    // logits that belong to tokens of the vocabulary
  std::vector<Token> suppressed;       // candidates that the model file forbids, whatever the options are
  std::uint32_t seed;
  std::optional<GrammarMatcher> grammar;  // prompt tokens are not matched against it
  std::optional<GrammarTrigger> trigger;  // set until the grammar begins to hold
  llama_sampler_ptr chain;
  bool is_grammar_lost = false;              // the grammar threw an exception
  std::vector<llama_token_data> candidates;  // [n_candidates], filled anew for each choice

  // Chooses among the candidates. The grammar plays no part except for the candidates that it has ruled out before.
  Token choose() {
    llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(chain.get(), &array);
    const std::span<const llama_token_data> chosen_from(array.data, array.size);
    auto chosen = chosen_from.begin() + std::max<std::int64_t>(array.selected, 0);
    if (!is_possible(*chosen)) {  // a draw of exactly 0 takes the first candidate, however unlikely
      chosen = std::max_element(chosen_from.begin(), chosen_from.end(),
                                [](const auto& a, const auto& b) { return a.logit < b.logit; });
    }
    return chosen->id;
  }

  void fill(std::span<const float> logits) {
    candidates.resize(static_cast<std::size_t>(n_candidates));
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i] = {static_cast<Token>(i), logits[i], 0.0f};
    for (const Token token : suppressed) candidates[static_cast<std::size_t>(token)].logit = kImpossible;
  }

  // Chooses freely, and checks whether the grammar begins to hold with that token.
  Token choose_before_grammar(std::span<const float> logits) {
    fill(logits);
    const Token token = choose();
    const auto begun = trigger->add(model->token_text(token, true));
    if (begun && grammar->accept_text(*begun)) trigger.reset();
    return token;
  }

  // Returns the likeliest of the allowed tokens. It is needed if a sampler chooses another token: `infill` ends an
  // answer with a token that it was not given.
  Token likeliest(std::span<const float> logits, const std::vector<bool>& allowed) const {
    Token best = -1;
    for (Token token = 0; token < n_candidates; ++token) {
      const auto i = static_cast<std::size_t>(token);
      if (allowed[i] && (best < 0 || logits[i] > logits[static_cast<std::size_t>(best)])) best = token;
    }
    return best;
  }

  // Chooses a token and checks only that one against the grammar; the grammar is asked about all tokens only if it does
  // not fit. Most fit, and a choice among all costs milliseconds with a large vocabulary.
  Token choose_by_grammar(std::span<const float> logits) {
    is_grammar_lost = true;  // unless this function reaches its end
    fill(logits);
    Token token = choose();
    if (!grammar->allows(token)) {
      std::vector<bool> allowed = grammar->allowed();
      for (const Token forbidden : suppressed) allowed[static_cast<std::size_t>(forbidden)] = false;
      fill(logits);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (!allowed[i]) candidates[i].logit = kImpossible;
      }
      if (std::none_of(candidates.begin(), candidates.end(), is_possible)) {
        throw Error(ErrorCode::kInvalidArgument, "the grammar allows no token of this model here: change the grammar");
      }
      token = choose();
      if (!allowed[static_cast<std::size_t>(token)]) token = likeliest(logits, allowed);
    }
    grammar->accept(token);
    is_grammar_lost = false;
    return token;
  }
};

Sampler::Sampler(std::shared_ptr<const Model> model, const SamplingOptions& options) {
  if (model == nullptr) refuse("a sampler needs a model");
  options.validate();
  const Tokenizer& tokenizer = model->impl().tokenizer;
  const int n_vocab = model->info().n_vocab;
  // Some files pad the output matrix beyond the vocabulary, so there may be more logits than tokens.
  const int n_candidates = tokenizer.has_tokens() ? std::min(n_vocab, tokenizer.n_vocab()) : n_vocab;
  const std::uint32_t seed = choose_seed(options.seed);
  impl_ = std::make_unique<Impl>(Impl{.model = model,
                                      .n_vocab = n_vocab,
                                      .n_candidates = n_candidates,
                                      .suppressed = suppressed_candidates(tokenizer, n_candidates),
                                      .seed = seed,
                                      .grammar = make_matcher(tokenizer, options.grammar, options.grammar_start),
                                      .chain = make_chain(options, *model, seed)});
  if (impl_->grammar && options.grammar_start.is_lazy) impl_->trigger.emplace(options.grammar_start);
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

Token Sampler::sample(std::span<const float> logits) {
  if (std::cmp_not_equal(logits.size(), impl_->n_vocab)) {
    refuse("sampling needs " + std::to_string(impl_->n_vocab) + " logits and got " + std::to_string(logits.size()));
  }
  if (impl_->is_grammar_lost) refuse("the text did not follow the grammar: start a new sampler");
  const std::span<const float> used = logits.first(static_cast<std::size_t>(impl_->n_candidates));
  const bool is_valid = std::all_of(used.begin(), used.end(), [](float logit) {
    return logit <= std::numeric_limits<float>::max();  // false for NaN as well
  });
  const auto is_finite = [](float logit) { return logit > -std::numeric_limits<float>::infinity(); };
  if (!is_valid || std::none_of(used.begin(), used.end(), is_finite)) {
    throw Error(
        ErrorCode::kInternal,
        "the logits are not numbers: check the model file against its checksum, and report this if it is intact");
  }
  if (!impl_->grammar) impl_->fill(logits);
  const Token token = impl_->trigger   ? impl_->choose_before_grammar(logits)
                      : impl_->grammar ? impl_->choose_by_grammar(logits)
                                       : impl_->choose();
  accept(token);
  return token;
}

void Sampler::accept(Token token) {
  if (token < 0 || token >= impl_->n_vocab) {
    refuse("there is no token " + std::to_string(token) + ": the model has " + std::to_string(impl_->n_vocab) +
           " tokens");
  }
  llama_sampler_accept(impl_->chain.get(), token);
}

std::uint32_t Sampler::seed() const { return impl_->seed; }

}  // namespace winnow
