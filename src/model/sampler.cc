// Choosing the next token with libllama's samplers, in llama.cpp's default order: grammar, penalties, top-k, top-p,
// min-p, temperature, draw.
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/ggml_log.h"
#include "model/model_impl.h"
#include "model/tokenizer.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

// Reads a GBNF grammar as libllama does, only to refuse what libllama would print about, not survive or not finish: it
// reports syntax errors on stderr, never ends on {3,2}, overflows the stack on deep nesting, and misses left recursion
// through rules that may be empty. Keeps the shape of the rules, not their characters.
class GrammarCheck {
 public:
  GrammarCheck(std::string_view text, const llama_vocab* vocab) : text_(text), vocab_(vocab) {}

  // Throws Error(kInvalidArgument).
  void run() {
    if (text_.find('\0') != std::string_view::npos) refuse("the grammar holds a zero byte: remove it");
    if (const auto offset = find_invalid_utf8(text_)) {
      refuse("the grammar is not UTF-8 at byte " + std::to_string(*offset) + ": convert it");
    }
    skip_space(true);
    while (!at_end()) read_rule();
    for (const auto& [name, rule] : ids_) {
      if (!rules_[rule].defined) refuse("the grammar uses the rule '" + name + "' and does not define it");
    }
    if (!ids_.contains("root")) refuse("the grammar has no rule named 'root': name the one to start with so");
    refuse_left_recursion();
  }

 private:
  // libllama's own limit of repetitions, and ours of what a grammar may expand to (its recursion is one frame a rule).
  static constexpr std::uint64_t kMostRepetitions = 2000;
  static constexpr std::uint64_t kMostRules = 10'000;
  static constexpr std::uint64_t kMostElements = 1'000'000;
  static constexpr std::uint64_t kMostPaths = 1'000'000;
  static constexpr int kMostNested = 200;
  static constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

  // One part of a sequence: characters or a token (rule < 0), or a rule; `times` copies of it can be on its left edge.
  struct Item {
    int rule = -1;
    bool may_be_empty = false;
    std::uint64_t times = 1;
  };
  using Sequence = std::vector<Item>;
  struct Rule {
    std::vector<Sequence> alternates;
    bool defined = false;
    bool may_be_empty = false;
    enum { kNew, kInProgress, kDone } state = kNew;
    std::uint64_t n_paths = 0;  // that libllama's search for left recursion walks below this rule
  };

  bool at_end() const { return position_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c); }

  [[noreturn]] void fail(const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(position_, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    refuse("the grammar does not parse at line " + std::to_string(line) + ", byte " + std::to_string(column) + ": " +
           what);
  }

  void skip_space(bool newline_too) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        while (!at_end() && peek() != '\r' && peek() != '\n') ++position_;
      } else if (c == ' ' || c == '\t' || (newline_too && (c == '\r' || c == '\n'))) {
        ++position_;
      } else {
        return;
      }
    }
  }

  std::string_view read_name() {
    const std::size_t begin = position_;
    while (is_word(peek())) ++position_;
    if (position_ == begin) fail("a rule's name is expected here");
    return text_.substr(begin, position_ - begin);
  }

  int rule_named(std::string_view name) {
    const auto [entry, is_new] = ids_.try_emplace(std::string(name), static_cast<int>(rules_.size()));
    if (is_new) add_rule();
    return entry->second;
  }

  int add_rule() {
    count_rules(1);
    rules_.emplace_back();
    return static_cast<int>(rules_.size()) - 1;
  }

  void count_rules(std::uint64_t n) {
    n_rules_ += n;
    if (n_rules_ > kMostRules)
      fail("more than " + std::to_string(kMostRules) + " rules, repetitions included: simplify it");
  }

  void count_elements(std::uint64_t n) {
    n_elements_ += n;
    if (n_elements_ > kMostElements) fail("the repetitions expand to too much: lower their counts");
  }

  void read_character() {
    if (at_end()) fail("the grammar ends inside a literal or character class");
    if (peek() != '\\') {
      ++position_;
      while (!at_end() && (static_cast<unsigned char>(peek()) & 0xC0) == 0x80) ++position_;
      return;
    }
    const char escape = peek(1);
    const int n_hex = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
    if (n_hex == 0 && (escape == '\0' || std::string_view("trn\\\"[]-").find(escape) == std::string_view::npos)) {
      fail("unknown escape; known are \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-");
    }
    position_ += 2;
    for (int i = 0; i < n_hex; ++i, ++position_) {
      const char c = peek();
      if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) {
        fail("the escape needs " + std::to_string(n_hex) + " hexadecimal digits");
      }
    }
  }

  // <[id]> or <text of one token>.
  void read_token() {
    const std::size_t begin = position_;
    if (peek() != '<') fail("'<' is expected here");
    if (peek(1) == '[') {
      position_ += 2;
      read_count(std::numeric_limits<std::uint32_t>::max());
      if (peek() != ']' || peek(1) != '>') fail("']>' is expected here");
      position_ += 2;
      return;
    }
    while (!at_end() && peek() != '>') ++position_;
    if (at_end()) fail("'>' is expected after a token");
    ++position_;
    const std::string_view text = text_.substr(begin, position_ - begin);
    Token tokens[2];
    if (llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), tokens, 2, false, true) != 1) {
      fail("'" + std::string(text) + "' is not one token of this model");
    }
  }

  std::uint64_t read_count(std::uint64_t most) {
    if (!is_digit(peek())) fail("a number is expected here");
    std::uint64_t value = 0;
    while (is_digit(peek())) {
      value = value * 10 + static_cast<std::uint64_t>(peek() - '0');
      if (value > most) fail("the number is larger than " + std::to_string(most));
      ++position_;
    }
    return value;
  }

  void read_rule() {
    const int rule = rule_named(read_name());
    skip_space(false);
    if (text_.substr(position_, 3) != "::=") fail("'::=' is expected here");
    position_ += 3;
    skip_space(true);
    read_alternates(rule, 0);
    if (!at_end() && peek() != '\r' && peek() != '\n') fail("the end of the line is expected here");
    skip_space(true);
  }

  void read_alternates(int rule, int depth) {
    if (depth > kMostNested) fail("groups are nested deeper than " + std::to_string(kMostNested));
    std::vector<Sequence> alternates{read_sequence(depth)};
    while (peek() == '|') {
      ++position_;
      skip_space(true);
      alternates.push_back(read_sequence(depth));
    }
    rules_[rule].alternates = std::move(alternates);  // the last definition counts, as in libllama
    rules_[rule].defined = true;
  }

  Sequence read_sequence(int depth) {
    Sequence sequence;
    std::uint64_t n_item_elements = 0;  // of the last item, repetitions included
    std::uint64_t n_item_rules = 1;     // libllama's measure of the last item's weight
    const auto add_item = [&](int rule, std::uint64_t n_elements, std::uint64_t n_rules = 1) {
      sequence.push_back({.rule = rule, .may_be_empty = rule < 0 && n_elements == 0});
      n_item_elements = n_elements;
      n_item_rules = n_rules;
      count_elements(n_elements);
    };
    while (!at_end()) {
      const char c = peek();
      if (c == '"' || c == '[') {
        const char close = c == '[' ? ']' : '"';
        ++position_;
        if (c == '[' && peek() == '^') ++position_;
        std::uint64_t n = 0;
        for (; peek() != close; ++n) read_character();  // a range counts its '-' too
        ++position_;
        add_item(-1, n);
      } else if (c == '<' || c == '!') {
        if (c == '!') ++position_;
        read_token();
        add_item(-1, 1);
      } else if (is_word(c)) {
        add_item(rule_named(read_name()), 1);
      } else if (c == '(') {
        ++position_;
        skip_space(true);
        const std::uint64_t n_rules_before = n_rules_;
        const int group = add_rule();
        read_alternates(group, depth + 1);
        if (peek() != ')') fail("')' is expected here");
        ++position_;
        add_item(group, 1, n_rules_ - n_rules_before);
      } else if (c == '.') {
        ++position_;
        add_item(-1, 1);
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (sequence.empty() || n_item_elements == 0) fail("there is nothing to repeat before this");
        const auto [least, most] = read_repetition(depth > 0);
        const std::uint64_t n_copies = most != kUnbounded && most > 0 ? most : std::max<std::uint64_t>(least, 1);
        n_item_rules *= n_copies;
        if (n_item_rules > kMostRepetitions) {
          fail("repeats more than " + std::to_string(kMostRepetitions) +
               " times, inner groups included: lower the counts");
        }
        const std::uint64_t n_optional = most == kUnbounded ? 1 : most - least;
        count_rules(n_optional);
        count_elements(n_item_elements * (least + n_optional) + 3 * n_optional);
        n_item_elements = n_item_elements * least + (n_optional > 0 ? 1 : 0);
        sequence.back().may_be_empty |= least == 0;
        sequence.back().times *= n_copies;
      } else {
        break;
      }
      skip_space(depth > 0);
    }
    return sequence;
  }

  std::pair<std::uint64_t, std::uint64_t> read_repetition(bool newline_too) {
    const char c = peek();
    ++position_;
    if (c == '*') return {0, kUnbounded};
    if (c == '+') return {1, kUnbounded};
    if (c == '?') return {0, 1};
    skip_space(newline_too);
    const std::uint64_t least = read_count(kMostRepetitions);
    std::uint64_t most = least;
    skip_space(newline_too);
    if (peek() == ',') {
      ++position_;
      skip_space(newline_too);
      most = is_digit(peek()) ? read_count(std::numeric_limits<std::uint32_t>::max()) : kUnbounded;
      if (most < least) fail("the upper bound of the repetition is below the lower one");
      if (most > kMostRepetitions) most = kUnbounded;
      skip_space(newline_too);
    }
    if (peek() != '}') fail("'}' is expected here");
    ++position_;
    return {least, most};
  }

  bool may_be_empty(const Item& item) const {
    return item.may_be_empty || (item.rule >= 0 && rules_[item.rule].may_be_empty);
  }

  void refuse_left_recursion() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Rule& rule : rules_) {
        const bool empty = std::any_of(rule.alternates.begin(), rule.alternates.end(), [&](const Sequence& sequence) {
          return std::all_of(sequence.begin(), sequence.end(), [&](const Item& item) { return may_be_empty(item); });
        });
        changed |= empty != rule.may_be_empty;
        rule.may_be_empty = empty;
      }
    }
    for (const auto& [name, rule] : ids_) walk_left_edge(rule, name);
  }

  void walk_left_edge(int index, const std::string& from) {
    Rule& rule = rules_[index];
    if (rule.state == Rule::kDone) return;
    if (rule.state == Rule::kInProgress) {
      refuse("the grammar is left-recursive at or below the rule '" + from +
             "': put a character before the rule's use of itself");
    }
    rule.state = Rule::kInProgress;
    rule.n_paths = 1;
    for (const Sequence& sequence : rule.alternates) {
      for (const Item& item : sequence) {
        if (item.rule >= 0) {
          walk_left_edge(item.rule, from);
          rule.n_paths += item.times * (1 + rules_[item.rule].n_paths);
        }
        if (rule.n_paths > kMostPaths) {
          refuse("the grammar is too ambiguous at or below the rule '" + from +
                 "': remove alternatives that begin alike");
        }
        if (!may_be_empty(item)) break;
      }
    }
    rule.state = Rule::kDone;
  }

  std::string_view text_;
  const llama_vocab* vocab_;
  std::size_t position_ = 0;  // in text_
  std::map<std::string, int> ids_;
  std::vector<Rule> rules_;
  std::uint64_t n_rules_ = 0;     // as libllama will count them
  std::uint64_t n_elements_ = 0;  // likewise, 8 bytes each
};

// As libllama's default seed: asks for a random one.
constexpr std::uint32_t kRandomSeed = LLAMA_DEFAULT_SEED;

// Below it a draw is greedy in float32 anyway, and dividing logits by less would overflow.
constexpr float kColdest = 1e-6f;

void check_options(const SamplingOptions& options) {
  const auto in = [](float value, float low, float high) { return value >= low && value <= high; };  // false for NaN
  const auto require = [](bool is_valid, const char* name, auto value, const char* range) {
    if (!is_valid) refuse(std::string(name) + " is " + std::to_string(value) + " and must be " + range);
  };
  require(std::isfinite(options.temperature), "the temperature", options.temperature, "a finite number (0: greedy)");
  require(in(options.top_p, 0, 1), "top-p", options.top_p, "from 0 to 1");
  require(in(options.min_p, 0, 1), "min-p", options.min_p, "from 0 to 1");
  require(options.repeat_last_n >= 0 && options.repeat_last_n <= 1 << 24, "the number of tokens for penalties",
          options.repeat_last_n, "from 0 (no penalties) to 16777216");
  require(in(options.repeat_penalty, 1e-4f, 1e4f), "the repeat penalty", options.repeat_penalty,
          "from 0.0001 to 10000 (1: none)");
  require(in(options.frequency_penalty, -1e4f, 1e4f), "the frequency penalty", options.frequency_penalty,
          "from -10000 to 10000 (0: none)");
  require(in(options.presence_penalty, -1e4f, 1e4f), "the presence penalty", options.presence_penalty,
          "from -10000 to 10000 (0: none)");
}

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPointer = std::unique_ptr<llama_sampler, SamplerDeleter>;

SamplerPointer make_grammar(const Tokenizer& tokenizer, const std::string& grammar) {
  if (grammar.empty()) return nullptr;
  if (!tokenizer.has_tokens()) {
    throw Error(ErrorCode::kUnsupported,
                "the model file has no tokenizer, which a grammar needs: leave the grammar out");
  }
  GrammarCheck(grammar, tokenizer.vocab()).run();
  take_ggml_errors();
  SamplerPointer sampler;
  try {
    sampler.reset(llama_sampler_init_grammar(tokenizer.vocab(), grammar.c_str(), "root"));
  } catch (const std::exception& error) {
    refuse(std::string("libllama refuses the grammar: ") + error.what());
  }
  if (sampler == nullptr) {
    std::string reason = take_ggml_errors();
    while (!reason.empty() && reason.back() == '\n') reason.pop_back();
    refuse("libllama refuses the grammar: " + (reason.empty() ? "no reason given" : reason));
  }
  return sampler;
}

bool is_greedy(const SamplingOptions& options) { return options.temperature < kColdest; }

SamplerPointer make_chain(const SamplingOptions& options, int n_vocab, std::uint32_t seed) {
  SamplerPointer chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
  add(llama_sampler_init_penalties(n_vocab, options.repeat_last_n, options.repeat_penalty, options.frequency_penalty,
                                   options.presence_penalty));
  if (is_greedy(options)) {
    add(llama_sampler_init_greedy());
    return chain;
  }
  add(llama_sampler_init_top_k(options.top_k));
  add(llama_sampler_init_top_p(options.top_p, 1));
  add(llama_sampler_init_min_p(options.min_p, 1));
  add(llama_sampler_init_temp(options.temperature));
  add(llama_sampler_init_dist(seed));
  return chain;
}

std::uint32_t choose_seed(std::uint32_t seed) {
  if (seed != kRandomSeed) return seed;
  std::random_device device;
  do {
    seed = static_cast<std::uint32_t>(device());
  } while (seed == kRandomSeed);
  return seed;
}

bool is_possible(const llama_token_data& candidate) {
  return candidate.logit > -std::numeric_limits<float>::infinity();
}

}  // namespace

struct Sampler::Impl {
  std::shared_ptr<const Model> model;  // keeps the vocabulary alive
  int n_vocab;                         // length of the logits
  int n_candidates;                    // those of them that are tokens of the vocabulary
  std::uint32_t seed;
  bool is_greedy;
  SamplerPointer grammar;  // apart from the chain: prompt tokens are not held against it. Null: none
  SamplerPointer chain;
  bool is_grammar_lost = false;              // libllama's state is unusable after it threw
  std::vector<llama_token_data> candidates;  // [n_candidates], filled anew for each token

  void apply_grammar(llama_token_data_array& array) {
    llama_sampler_apply(grammar.get(), &array);
    if (std::none_of(array.data, array.data + array.size, is_possible)) {
      throw Error(ErrorCode::kInvalidArgument, "the grammar allows no token of this model here: change the grammar");
    }
  }

  bool grammar_allows(llama_token_data candidate) {
    llama_token_data_array array{&candidate, 1, -1, false};
    llama_sampler_apply(grammar.get(), &array);
    return is_possible(candidate);
  }

  void accept_in_grammar(Token token) {
    try {
      llama_sampler_accept(grammar.get(), token);
    } catch (const std::exception& error) {
      is_grammar_lost = true;
      throw Error(ErrorCode::kInvalidArgument,
                  std::string("the grammar cannot be followed any further: change it (") + error.what() + ")");
    }
  }
};

Sampler::Sampler(std::shared_ptr<const Model> model, const SamplingOptions& options) {
  if (model == nullptr) refuse("a sampler needs a model");
  check_options(options);
  const Tokenizer& tokenizer = model->impl().tokenizer;
  const int n_vocab = model->info().n_vocab;
  // Some files pad the output matrix beyond the vocabulary.
  const int n_candidates = tokenizer.has_tokens() ? std::min(n_vocab, tokenizer.n_vocab()) : n_vocab;
  const std::uint32_t seed = choose_seed(options.seed);
  impl_ =
      std::make_unique<Impl>(Impl{.model = model,
                                  .n_vocab = n_vocab,
                                  .n_candidates = n_candidates,
                                  .seed = seed,
                                  .is_greedy = is_greedy(options),
                                  .grammar = make_grammar(tokenizer, options.grammar),
                                  .chain = make_chain(options, n_vocab, seed),
                                  .candidates = std::vector<llama_token_data>(static_cast<std::size_t>(n_candidates))});
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

Token Sampler::sample(std::span<const float> logits) {
  if (std::cmp_not_equal(logits.size(), impl_->n_vocab)) {
    refuse("sampling needs " + std::to_string(impl_->n_vocab) + " logits and got " + std::to_string(logits.size()));
  }
  if (impl_->is_grammar_lost) refuse("the text does not follow the grammar any more: begin with a new sampler");
  std::vector<llama_token_data>& candidates = impl_->candidates;
  bool is_valid = true;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    candidates[i] = {static_cast<Token>(i), logits[i], 0.0f};
    is_valid &= logits[i] <= std::numeric_limits<float>::max();  // false for NaN as well
  }
  if (!is_valid || std::none_of(candidates.begin(), candidates.end(), is_possible)) {
    throw Error(
        ErrorCode::kInternal,
        "the logits are not numbers: check the model file against its checksum, and report this if it is intact");
  }

  const bool has_grammar = impl_->grammar != nullptr;
  llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
  if (has_grammar && !impl_->is_greedy) impl_->apply_grammar(array);
  llama_sampler_apply(impl_->chain.get(), &array);
  const std::span<const llama_token_data> chosen_from(array.data, array.size);
  const auto likeliest = [&] {
    return std::max_element(chosen_from.begin(), chosen_from.end(),
                            [](const auto& a, const auto& b) { return a.logit < b.logit; });
  };
  auto chosen = chosen_from.begin() + std::max<std::int64_t>(array.selected, 0);
  if (!is_possible(*chosen)) chosen = likeliest();  // a draw of exactly 0 takes the first candidate, however unlikely
  // The grammar costs far more than a greedy choice (milliseconds with a large vocabulary), and the penalties do not
  // depend on it: one token is asked about first, all of them only when that one is refused.
  if (has_grammar && impl_->is_greedy && !impl_->grammar_allows(*chosen)) {
    impl_->apply_grammar(array);
    chosen = likeliest();
  }
  const Token token = chosen->id;
  if (has_grammar) impl_->accept_in_grammar(token);
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
