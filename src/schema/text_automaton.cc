#include "schema/text_automaton.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/fnv1a.h"
#include "schema/pattern_graph.h"

namespace winnow {
namespace {

using Id = PatternGraph::Id;  // also of a formula
using Node = PatternGraph::Node;

// Boolean combinations of what may still follow, each stored once. They become the states of the automaton.
class Formulas {
 public:
  enum class Op { kFalse, kTrue, kEmpty, kSet, kNot, kAnd, kOr };

  Formulas(const PatternGraph& graph, std::size_t n_steps) : graph_(graph), n_left_(n_steps) {
    false_ = intern(Op::kFalse, {});
    true_ = intern(Op::kTrue, {});
    empty_ = intern(Op::kEmpty, {});
  }

  // The character before a node: none, one of no word, or one of a word. expand() returns the formula for a node after
  // it.
  enum class Before { kNothing, kOther, kWord };
  Id expand(Id id, Before before) {
    const std::uint64_t key = std::uint64_t{id} << 2 | static_cast<std::uint64_t>(before);
    if (const auto known = expanded_.find(key); known != expanded_.end()) return known->second;
    // A loop that takes no character adds no text.
    expanded_[key] = false_;
    spend(1);
    if (++depth_ > kMostDepth) PatternGraph::refuse_size();
    const Id made = expand_new(id, before);
    --depth_;
    return expanded_[key] = made;
  }

  // Returns the formula for what has to follow after a character of a class. `holds` has for each set whether it
  // contains the class: [sets].
  Id derive(Id formula, std::size_t character, const std::vector<bool>& holds, Before before) {
    const std::uint64_t key = std::uint64_t{formula} << 32 | character;
    if (const auto known = derived_.find(key); known != derived_.end()) return known->second;
    spend(1);
    constexpr std::size_t kMostKept = 500'000;
    if (derived_.size() > kMostKept) derived_.clear();
    const Entry entry = entries_[formula];
    Id made = false_;
    if (entry.op == Op::kTrue) {
      made = true_;
    } else if (entry.op == Op::kSet) {
      const Node& node = graph_.node(entry.children[0]);
      if (holds[node.value]) made = expand(node.children[0], before);
    } else if (entry.op == Op::kNot) {
      made = negated(derive(entry.children[0], character, holds, before));
    } else if (entry.op == Op::kAnd || entry.op == Op::kOr) {
      std::vector<Id> parts;
      for (const Id child : entry.children) parts.push_back(derive(child, character, holds, before));
      made = joined(entry.op, parts);
    }
    return derived_[key] = made;
  }

  bool may_end(Id formula) const {
    const Entry& entry = entries_[formula];
    const auto ends = [&](Id child) { return may_end(child); };
    switch (entry.op) {
      case Op::kTrue:
      case Op::kEmpty:
        return true;
      case Op::kNot:
        return !ends(entry.children[0]);
      case Op::kAnd:
        return std::all_of(entry.children.begin(), entry.children.end(), ends);
      case Op::kOr:
        return std::any_of(entry.children.begin(), entry.children.end(), ends);
      default:
        return false;
    }
  }

  bool is_false(Id formula) const { return formula == false_; }
  std::size_t n_left() const { return n_left_; }

  void spend(std::size_t n) {
    if (n > n_left_) PatternGraph::refuse_size();
    n_left_ -= n;
  }

  Id joined(Op op, const std::vector<Id>& parts) {
    const Id neutral = op == Op::kAnd ? true_ : false_, decisive = op == Op::kAnd ? false_ : true_;
    std::vector<Id> all;
    for (const Id part : parts) {
      if (part == decisive) return decisive;
      if (part == neutral) continue;
      if (entries_[part].op == op) {
        all.insert(all.end(), entries_[part].children.begin(), entries_[part].children.end());
      } else {
        all.push_back(part);
      }
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    spend(all.size());
    for (const Id part : all) {
      if (entries_[part].op == Op::kNot && std::binary_search(all.begin(), all.end(), entries_[part].children[0])) {
        return decisive;
      }
    }
    if (all.empty()) return neutral;
    return all.size() == 1 ? all.front() : intern(op, std::move(all));
  }

  Id negated(Id formula) {
    if (formula == true_) return false_;
    if (formula == false_) return true_;
    return entries_[formula].op == Op::kNot ? entries_[formula].children[0] : intern(Op::kNot, {formula});
  }

 private:
  static constexpr int kMostDepth = 5'000;
  struct Entry {
    Op op = Op::kFalse;
    std::vector<Id> children;  // of a set: its node
  };

  Id expand_new(Id id, Before before) {
    const Node& node = graph_.node(id);
    const auto parts = [&] {
      std::vector<Id> all;
      for (const Id child : node.children) all.push_back(expand(child, before));
      return all;
    };
    switch (node.kind) {
      case Node::Kind::kSet:
        return intern(Op::kSet, {id});
      case Node::Kind::kAny:
        return true_;
      case Node::Kind::kEnd:
        return empty_;
      case Node::Kind::kOr:
        return joined(Op::kOr, parts());
      case Node::Kind::kAnd:
        return joined(Op::kAnd, parts());
      case Node::Kind::kNot:
        return negated(expand(node.children[0], before));
      case Node::Kind::kBegin:
        return before == Before::kNothing ? expand(node.children[0], before) : false_;
      case Node::Kind::kWordBoundary: {
        const bool wants_word = (before == Before::kWord) == (node.value != 0);
        const Id word = expand(node.children[1], before);
        return joined(Op::kAnd, {wants_word ? word : negated(word), expand(node.children[0], before)});
      }
    }
    return false_;
  }

  Id intern(Op op, std::vector<Id> children) {
    Fnv1a hash;
    hash.add(&op, sizeof op).add(children.data(), children.size() * sizeof(Id));
    const auto [first, last] = numbers_.equal_range(hash.value());
    for (auto number = first; number != last; ++number) {
      const Entry& entry = entries_[number->second];
      if (entry.op == op && entry.children == children) return number->second;
    }
    spend(1 + children.size());
    const auto number = static_cast<Id>(entries_.size());
    numbers_.emplace(hash.value(), number);
    entries_.push_back({op, std::move(children)});
    return number;
  }

  const PatternGraph& graph_;
  std::size_t n_left_;
  int depth_ = 0;
  Id false_ = 0, true_ = 0, empty_ = 0;
  std::vector<Entry> entries_;
  std::unordered_multimap<std::uint64_t, Id> numbers_;  // by a hash of their content
  std::unordered_map<std::uint64_t, Id> expanded_;      // by a node and what is before it
  std::unordered_map<std::uint64_t, Id> derived_;       // by a formula and a class
};

// Classes of characters that none of the sets distinguishes, and the sets that contain each class.
struct Alphabet {
  std::vector<CharacterSet> classes;
  std::vector<std::vector<bool>> is_in;  // [classes][sets]

  Alphabet(const std::vector<CharacterSet>& sets, TextForm form) {
    std::vector<std::uint32_t> bounds{0};
    for (const CharacterSet& set : sets) {
      for (const auto& [first, last] : set.ranges()) {
        bounds.push_back(first);
        bounds.push_back(last + 1);
      }
    }
    CharacterSet usable = CharacterSet::all();
    // Control characters that have no short escape are left out.
    const CharacterSet unusable =
        form == TextForm::kPlain ? CharacterSet{{0, 0}} : CharacterSet{{0, 7}, {0xB, 0xB}, {0xE, 0x1F}, {0x7F, 0x7F}};
    usable = usable.intersection(unusable.complement());
    for (const auto& [first, last] : usable.ranges()) {
      bounds.push_back(first);
      bounds.push_back(last + 1);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    std::map<std::vector<bool>, std::vector<CharacterSet::Range>> groups;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const std::uint32_t first = bounds[i];
      const std::uint32_t last = i + 1 < bounds.size() ? bounds[i + 1] - 1 : CharacterSet::kLast;
      if (first > last || !usable.contains(first)) continue;
      std::vector<bool> in;
      for (const CharacterSet& set : sets) in.push_back(set.contains(first));
      groups[in].push_back({first, last});
    }
    for (auto& [in, ranges] : groups) {
      is_in.push_back(in);
      classes.emplace_back(std::move(ranges));
    }
  }
};

}  // namespace

TextAutomaton::TextAutomaton(const TextConditions& conditions, TextForm form, AutomatonLimits& limits) : form_(form) {
  constexpr std::size_t kMostNodes = 100'000;
  const std::size_t n_most = std::min(limits.n_steps, limits.n_left);
  // All steps are taken first. Those that are not needed are given back if the construction succeeds.
  limits.n_left -= n_most;
  PatternGraph graph(std::min(kMostNodes, n_most));
  const Id word = graph.word_set();
  std::vector<Id> all;
  for (const Pattern& pattern : conditions.matched) all.push_back(graph.found(pattern));
  for (const Pattern& pattern : conditions.unmatched) {
    all.push_back(graph.add({.kind = Node::Kind::kNot, .children = {graph.found(pattern)}}));
  }
  if (conditions.least > 0 || conditions.most != Pattern::kUnbounded) {
    if (conditions.least > kMostNodes || (conditions.most != Pattern::kUnbounded && conditions.most > kMostNodes)) {
      PatternGraph::refuse_size();
    }
    all.push_back(graph.of_length(conditions.least, conditions.most));
  }
  for (const Step& step : conditions.steps) all.push_back(graph.multiple(step));
  const Id root = graph.add({.kind = Node::Kind::kAnd, .children = all});
  const Alphabet alphabet(graph.sets(), form);
  classes_ = alphabet.classes;

  using Before = Formulas::Before;
  Formulas formulas(graph, n_most);
  formulas.spend(graph.size());
  std::vector<Id> found{formulas.expand(root, Before::kNothing)};
  std::unordered_map<Id, std::uint32_t> numbers{{found[0], 0}};
  for (std::size_t i = 0; i < found.size(); ++i) {
    State& state = states_.emplace_back();
    state.is_end = formulas.may_end(found[i]);
    for (std::size_t character = 0; character < classes_.size(); ++character) {
      const std::vector<bool>& holds = alphabet.is_in[character];
      const Id next = formulas.derive(found[i], character, holds, holds[word] ? Before::kWord : Before::kOther);
      if (formulas.is_false(next)) {
        state.next.push_back(kNone);
        continue;
      }
      const auto [number, is_new] = numbers.try_emplace(next, static_cast<std::uint32_t>(found.size()));
      if (is_new) found.push_back(next);
      if (found.size() > limits.n_states) PatternGraph::refuse_size();
      state.next.push_back(number->second);
    }
  }
  limits.n_left += formulas.n_left();
  drop_dead_ends();
  constexpr std::size_t kMostToMerge = 1'000;
  if (states_.size() <= kMostToMerge) merge_alike();
}

void TextAutomaton::drop_dead_ends() {
  std::vector<std::vector<std::uint32_t>> before(states_.size());
  std::vector<std::uint32_t> open;
  std::vector<bool> is_alive(states_.size());
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    for (const std::uint32_t next : states_[i].next) {
      if (next != kNone && (before[next].empty() || before[next].back() != i)) before[next].push_back(i);
    }
    if (!states_[i].is_end) continue;
    is_alive[i] = true;
    open.push_back(i);
  }
  while (!open.empty()) {
    const std::uint32_t state = open.back();
    open.pop_back();
    for (const std::uint32_t one : before[state]) {
      if (is_alive[one]) continue;
      is_alive[one] = true;
      open.push_back(one);
    }
  }
  if (states_.empty() || !is_alive[0]) {
    states_.clear();
    return;
  }
  std::vector<std::uint32_t> places(states_.size(), kNone);
  std::vector<State> kept;
  for (std::uint32_t i = 0; i < states_.size(); ++i) {
    if (!is_alive[i]) continue;
    places[i] = static_cast<std::uint32_t>(kept.size());
    kept.push_back(std::move(states_[i]));
  }
  for (State& state : kept) {
    for (std::uint32_t& next : state.next) next = next == kNone ? kNone : places[next];
  }
  states_ = std::move(kept);
}

// Merges states by Moore's refinement: they fall into groups by what they lead to, until no group falls apart.
void TextAutomaton::merge_alike() {
  if (states_.empty()) return;
  std::vector<std::uint32_t> group(states_.size());
  for (std::size_t i = 0; i < states_.size(); ++i) group[i] = states_[i].is_end ? 1 : 0;
  // Long chains, as lengths make, would take a round for each of their states.
  constexpr int kMostRounds = 64;
  int n_rounds = 0;
  for (std::size_t n_groups = 0;;) {
    if (++n_rounds > kMostRounds) return;
    std::map<std::vector<std::uint32_t>, std::uint32_t> groups;
    std::vector<std::uint32_t> finer(states_.size());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::vector<std::uint32_t> key{group[i]};
      for (const std::uint32_t next : states_[i].next) key.push_back(next == kNone ? kNone : group[next]);
      finer[i] = groups.try_emplace(std::move(key), static_cast<std::uint32_t>(groups.size())).first->second;
    }
    group = std::move(finer);
    if (groups.size() == n_groups) break;
    n_groups = groups.size();
  }
  std::vector<State> merged;
  std::vector<std::uint32_t> places(states_.size(), kNone);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (places[group[i]] != kNone) continue;
    places[group[i]] = static_cast<std::uint32_t>(merged.size());
    merged.push_back(states_[i]);
  }
  for (State& state : merged) {
    for (std::uint32_t& next : state.next) next = next == kNone ? kNone : places[group[next]];
  }
  states_ = std::move(merged);
}

bool TextAutomaton::matches(std::string_view text) const {
  if (states_.empty()) return false;
  std::uint32_t state = 0;
  for (const Pattern& one : Pattern::literal(text).children) {
    const std::uint32_t value = one.set.ranges().front().first;
    const auto found = std::find_if(classes_.begin(), classes_.end(),
                                    [&](const CharacterSet& characters) { return characters.contains(value); });
    if (found == classes_.end()) return false;
    state = states_[state].next[static_cast<std::size_t>(found - classes_.begin())];
    if (state == kNone) return false;
  }
  return states_[state].is_end;
}

std::string TextAutomaton::grammar(GrammarRules& rules) const {
  const auto is_last = [](const State& state) {
    return std::all_of(state.next.begin(), state.next.end(), [](std::uint32_t next) { return next == kNone; });
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < states_.size(); ++i)
    names.push_back(i == 0 || !is_last(states_[i]) ? rules.reserve() : "");
  std::map<std::vector<std::size_t>, std::string> sets;  // by their classes
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (names[i].empty()) continue;
    std::map<std::uint32_t, std::vector<std::size_t>> moves;  // by where they lead
    for (std::size_t character = 0; character < classes_.size(); ++character) {
      if (states_[i].next[character] != kNone) moves[states_[i].next[character]].push_back(character);
    }
    std::string text;
    for (const auto& [next, characters] : moves) {
      std::string& set = sets[characters];
      if (set.empty()) {
        CharacterSet together;
        for (const std::size_t character : characters) together.add(classes_[character]);
        set = together.grammar(form_);
        constexpr std::size_t kShort = 12;
        if (set.size() > kShort) set = rules.add(set);
      }
      text += (text.empty() ? "" : " | ") + set + (names[next].empty() ? "" : " " + names[next]);
    }
    if (states_[i].is_end) text += text.empty() ? "\"\"" : " | \"\"";
    rules.define(names[i], text);
  }
  return names.front();
}

}  // namespace winnow
