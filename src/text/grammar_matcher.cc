#include "text/grammar_matcher.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/fnv1a.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using Kind = Grammar::Kind;

// The further steps that a call about all tokens may take for each of them, whatever the size of the vocabulary, and a
// call about a text for each byte. JSON schemas take three to six for each token within a text.
constexpr std::size_t kMostStepsEach = 24;
// The steps that a new state costs for its memory, so that the bound on steps bounds the memory of all states.
constexpr std::size_t kStepsOfState = 32;
// The number of nodes from which on unneeded ones are removed.
constexpr std::size_t kTidyNodes = 1 << 16;

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar, const Tokenizer& tokenizer, std::size_t n_steps)
    : grammar_(std::move(grammar)), tokenizer_(tokenizer), n_steps_(n_steps) {
  nodes_.emplace_back();
  marks_.push_back(0);
  n_left_ = n_steps_;
  for (const std::uint32_t sequence : grammar_->rules[grammar_->root]) {
    open_.push_back(grammar_->symbols[sequence].kind == Kind::kEnd ? 0 : node_of(sequence, 0));
  }
  expand(state_);
}

void GrammarMatcher::spend(std::size_t n_steps) {
  if (n_steps > n_left_) {
    throw Error(ErrorCode::kInvalidArgument,
                "the grammar can be followed in too many ways at once: remove alternatives and optional parts that "
                "begin alike");
  }
  n_left_ -= n_steps;
}

std::uint32_t GrammarMatcher::node_of(std::uint32_t symbol, std::uint32_t parent, std::uint32_t count) {
  if (2 * nodes_.size() >= table_.size()) {
    table_.assign(std::max<std::size_t>(256, 4 * nodes_.size()), 0);
    const std::vector<Node> all = std::exchange(nodes_, std::vector<Node>(1));
    for (std::size_t i = 1; i < all.size(); ++i) node_of(all[i].symbol, all[i].parent, all[i].count);
  }
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15U;
  const std::uint64_t hash = ((std::uint64_t{symbol} << 32 | parent) * kMix ^ count) * kMix;
  for (std::size_t place = (hash >> 32) % table_.size();; place = (place + 1) % table_.size()) {
    const std::uint32_t found = table_[place];
    if (found != 0) {
      const Node& other = nodes_[found];
      if (other.symbol != symbol || other.parent != parent || other.count != count) continue;
      return found;
    }
    table_[place] = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({symbol, parent, count});
    marks_.resize(std::max(marks_.size(), nodes_.size()));
    return table_[place];
  }
}

std::uint32_t GrammarMatcher::after(std::uint32_t node) {
  const auto [symbol, parent, count] = nodes_[node];
  return grammar_->symbols[symbol + 1].kind == Kind::kEnd ? parent : node_of(symbol + 1, parent);
}

void GrammarMatcher::expand(State& to) {
  if (++n_expansions_ == 0) {
    std::fill(marks_.begin(), marks_.end(), 0);
    n_expansions_ = 1;
  }
  to.nodes.clear();
  while (!open_.empty()) {
    const std::uint32_t node = open_.back();
    open_.pop_back();
    spend(1);
    if (std::exchange(marks_[node], n_expansions_) == n_expansions_) continue;
    const Grammar::Symbol symbol = awaited(node);
    if (node != 0 && symbol.kind == Kind::kRule) {
      open_rule(symbol.value, after(node));
    } else if (node != 0 && symbol.kind == Kind::kRepeat) {
      open_repeat(node, grammar_->repeats[symbol.value]);
    } else {
      to.nodes.push_back(node);
    }
  }
  arrange(to);
}

void GrammarMatcher::open_rule(std::uint32_t rule, std::uint32_t behind) {
  for (const std::uint32_t sequence : grammar_->rules[rule]) {
    spend(1);
    open_.push_back(grammar_->symbols[sequence].kind == Kind::kEnd ? behind : node_of(sequence, behind));
  }
}

void GrammarMatcher::open_repeat(std::uint32_t node, const Grammar::Repeat& repeat) {
  const auto [symbol, parent, count] = nodes_[node];
  const std::uint32_t least = repeat.is_empty ? 0 : repeat.least;
  if (count >= least) open_.push_back(after(node));
  if (count >= repeat.most) return;
  const bool is_bounded = repeat.most != Grammar::kUnbounded;
  const std::uint32_t next = is_bounded ? count + 1 : std::min(count + 1, least);
  const std::uint32_t behind = next == repeat.most ? after(node) : node_of(symbol, parent, next);
  // If the empty text matches the rule, an iteration without text leads to no stack that is not open here already.
  if (repeat.is_empty && next != repeat.most) marks_[behind] = n_expansions_;
  open_rule(repeat.rule, behind);
}

void GrammarMatcher::arrange(State& state) const {
  const auto is_character = [&](std::uint32_t node) { return node != 0 && awaited(node).kind == Kind::kCharacter; };
  const auto others = std::partition(state.nodes.begin(), state.nodes.end(), is_character);
  std::sort(state.nodes.begin(), others, [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t first = awaited(a).value, second = awaited(b).value;
    return first != second ? first < second : a < b;
  });
  std::sort(others, state.nodes.end());
  state.n_characters = static_cast<std::size_t>(others - state.nodes.begin());
}

void GrammarMatcher::find_waiting(const State& from, std::uint32_t first, std::uint32_t last,
                                  std::vector<std::uint32_t>& found) {
  const auto others = from.nodes.begin() + static_cast<std::ptrdiff_t>(from.n_characters);
  auto node = std::lower_bound(from.nodes.begin(), others, first,
                               [&](std::uint32_t one, std::uint32_t value) { return awaited(one).value < value; });
  for (; node != others && awaited(*node).value <= last; ++node) found.push_back(*node);
  for (node = others; node != from.nodes.end(); ++node) {
    if (*node == 0) continue;
    const Grammar::Symbol symbol = awaited(*node);
    if (symbol.kind == Kind::kClass && grammar_->classes[symbol.value].meets(first, last)) found.push_back(*node);
  }
  spend(1 + found.size() + from.nodes.size() - from.n_characters);
}

void GrammarMatcher::step(const State& from, unsigned char byte, State& to) {
  to.nodes.clear();
  to.n_characters = 0;
  to.bits = 0;
  to.n_missing = to.n_bytes = 0;
  const auto go_behind = [&](std::uint32_t code_point) {
    find_waiting(from, code_point, code_point, open_);
    for (std::uint32_t& node : open_) node = after(node);
    if (!open_.empty()) expand(to);
  };
  if (byte == 0) return;
  if (from.n_missing == 0 && byte < 0x80) return go_behind(byte);
  if (from.n_missing == 0) {
    if (byte < 0xC2 || byte > 0xF4) return;
    to.n_bytes = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    to.n_missing = to.n_bytes - 1;
    to.bits = byte & (0x7FU >> to.n_bytes);
  } else {
    if ((byte & 0xC0) != 0x80) return;
    to.n_bytes = from.n_bytes;
    to.n_missing = from.n_missing - 1;
    to.bits = from.bits << 6 | (byte & 0x3FU);
  }
  // The code points that the bytes can still become. Overlong forms and surrogates are excluded.
  const std::uint32_t least = to.n_bytes == 2 ? 0x80 : to.n_bytes == 3 ? 0x800 : 0x10000;
  const std::uint32_t first = std::max(to.bits << (6 * to.n_missing), least);
  const std::uint32_t last = std::min(((to.bits + 1) << (6 * to.n_missing)) - 1, 0x10FFFFU);
  if (first > last || (first >= 0xD800 && last <= 0xDFFF)) return;
  if (to.n_missing > 0) {
    find_waiting(from, first, last, to.nodes);
    arrange(to);
    return;
  }
  to.n_bytes = 0;
  to.bits = 0;
  go_behind(first);
}

bool GrammarMatcher::may_end() const {
  return state_.n_missing == 0 && std::find(state_.nodes.begin(), state_.nodes.end(), 0U) != state_.nodes.end();
}

GrammarMatcher::State GrammarMatcher::behind_token(Token token) {
  State behind;
  if (state_.n_missing > 0) return behind;
  spend(state_.nodes.size() - state_.n_characters);
  for (std::size_t i = state_.n_characters; i < state_.nodes.size(); ++i) {
    if (state_.nodes[i] == 0) continue;
    const Grammar::Symbol symbol = awaited(state_.nodes[i]);
    const bool is_same = symbol.value == static_cast<std::uint32_t>(token);
    if ((symbol.kind == Kind::kToken && is_same) || (symbol.kind == Kind::kOtherToken && !is_same)) {
      open_.push_back(after(state_.nodes[i]));
    }
  }
  expand(behind);
  return behind;
}

GrammarMatcher::State GrammarMatcher::after_text(std::string_view text) {
  State before = state_, now;
  if (text.empty()) return now;
  for (const char byte : text) {
    step(before, static_cast<unsigned char>(byte), now);
    if (now.nodes.empty()) break;
    std::swap(before, now);
  }
  return now.nodes.empty() ? now : before;
}

bool GrammarMatcher::allows(Token token) {
  n_left_ = n_steps_;
  if (tokenizer_.is_end_of_generation(token)) return may_end();
  const std::string text = tokenizer_.token_text(token, true);
  return !text.empty() && (!after_text(text).nodes.empty() || !behind_token(token).nodes.empty());
}

// The states that bytes lead to while a call asks about all tokens. Most of a vocabulary goes through the same few
// states, so each of their steps is computed only once.
class GrammarMatcher::Paths {
 public:
  static constexpr std::uint32_t kStart = 0, kNowhere = std::numeric_limits<std::uint32_t>::max();

  explicit Paths(GrammarMatcher& matcher) : matcher_(matcher) { number_of(matcher.state_); }

  std::uint32_t follow(std::uint32_t from, unsigned char byte) {
    matcher_.spend(1);
    const auto [known, is_new] = next_.try_emplace(std::uint64_t{from} << 8 | byte, kNowhere);
    if (!is_new) return known->second;
    matcher_.step(states_[from], byte, to_);
    return to_.nodes.empty() ? kNowhere : known->second = number_of(to_);
  }

 private:
  std::uint32_t number_of(const State& state) {
    Fnv1a hash;
    hash.add(state.nodes.data(), state.nodes.size() * sizeof(state.nodes[0]));
    hash.add(&state.bits, sizeof(state.bits)).add(&state.n_missing, sizeof(state.n_missing));
    const auto [first, last] = numbers_.equal_range(hash.value());
    for (auto number = first; number != last; ++number) {
      const State& other = states_[number->second];
      if (other.nodes == state.nodes && other.bits == state.bits && other.n_missing == state.n_missing &&
          other.n_bytes == state.n_bytes) {
        return number->second;
      }
    }
    matcher_.spend(kStepsOfState);
    const auto number = static_cast<std::uint32_t>(states_.size());
    states_.push_back(state);
    numbers_.emplace(hash.value(), number);
    return number;
  }

  GrammarMatcher& matcher_;
  State to_;
  std::deque<State> states_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> numbers_;  // by a hash of their content
  std::unordered_map<std::uint64_t, std::uint32_t> next_;          // by the number of a state and a byte
};

std::vector<bool> GrammarMatcher::allowed() {
  const TokenPieces& pieces = tokenizer_.pieces();
  n_left_ = n_steps_ + kMostStepsEach * pieces.tokens.size();
  std::vector<bool> result(static_cast<std::size_t>(tokenizer_.n_vocab()));
  if (may_end()) {
    for (const Token token : pieces.ends) result[static_cast<std::size_t>(token)] = true;
  }
  // Tokens with a common beginning follow each other: the states along a token are those of the next one as far as both
  // agree.
  Paths paths(*this);
  std::vector<std::uint32_t> states{Paths::kStart};
  constexpr std::size_t kAlive = std::numeric_limits<std::size_t>::max();
  std::size_t n_dead = kAlive;  // bytes of the last token up to the first that does not fit
  for (std::size_t i = 0; i < pieces.tokens.size(); ++i) {
    if (pieces.n_shared[i] >= n_dead) continue;
    n_dead = kAlive;
    const std::string_view text = pieces.text(i);
    states.resize(std::max(states.size(), text.size() + 1));
    for (std::size_t k = pieces.n_shared[i]; k < text.size() && n_dead == kAlive; ++k) {
      states[k + 1] = paths.follow(states[k], static_cast<unsigned char>(text[k]));
      if (states[k + 1] == Paths::kNowhere) n_dead = k + 1;
    }
    result[static_cast<std::size_t>(pieces.tokens[i])] = n_dead == kAlive;
  }
  for (const std::uint32_t node : state_.nodes) {
    const Grammar::Symbol symbol = awaited(node);
    if (node == 0 || state_.n_missing > 0) continue;
    if (symbol.kind == Kind::kToken && symbol.value < result.size()) {
      const auto token = static_cast<Token>(symbol.value);
      result[symbol.value] = !tokenizer_.is_end_of_generation(token) && !tokenizer_.token_text(token, true).empty();
    } else if (symbol.kind == Kind::kOtherToken) {
      spend(pieces.tokens.size());
      for (const Token token : pieces.tokens) {
        if (static_cast<std::uint32_t>(token) != symbol.value) result[static_cast<std::size_t>(token)] = true;
      }
    }
  }
  tidy();
  return result;
}

bool GrammarMatcher::accept_text(std::string_view text) {
  if (text.empty()) return true;
  n_left_ = n_steps_ + text.size() * kMostStepsEach;
  State next = after_text(text);
  if (next.nodes.empty()) return false;
  state_ = std::move(next);
  tidy();
  return true;
}

void GrammarMatcher::accept(Token token) {
  n_left_ = n_steps_;
  const bool is_end = tokenizer_.is_end_of_generation(token);
  if (is_end && may_end()) return;
  const State behind = is_end ? State() : behind_token(token);
  State next = is_end ? State() : after_text(tokenizer_.token_text(token, true));
  if (next.nodes.empty() && behind.nodes.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the text does not follow the grammar");
  }
  if (next.nodes.empty()) {
    next = behind;
  } else if (next.n_missing == 0 && !behind.nodes.empty()) {
    // If the text ends within a character, it goes on with its bytes, and the match as a whole token is dropped.
    next.nodes.insert(next.nodes.end(), behind.nodes.begin(), behind.nodes.end());
    std::sort(next.nodes.begin(), next.nodes.end());
    next.nodes.erase(std::unique(next.nodes.begin(), next.nodes.end()), next.nodes.end());
    arrange(next);
  }
  state_ = std::move(next);
  tidy();
}

void GrammarMatcher::tidy() {
  if (nodes_.size() < kTidyNodes) return;
  std::vector<bool> is_needed(nodes_.size());
  for (std::uint32_t node : state_.nodes) {
    for (; node != 0 && !is_needed[node]; node = nodes_[node].parent) is_needed[node] = true;
  }
  const std::vector<Node> all = std::exchange(nodes_, std::vector<Node>(1));
  table_.clear();
  marks_.assign(1, 0);
  std::vector<std::uint32_t> places(all.size());
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (is_needed[i]) places[i] = node_of(all[i].symbol, places[all[i].parent], all[i].count);
  }
  for (std::uint32_t& node : state_.nodes) node = places[node];
  arrange(state_);
  nodes_.shrink_to_fit();
  table_.shrink_to_fit();
  marks_.shrink_to_fit();
}

}  // namespace winnow
