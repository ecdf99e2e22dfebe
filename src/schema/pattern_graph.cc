#include "schema/pattern_graph.h"

#include <map>
#include <utility>

#include "winnow/error.h"

namespace winnow {

PatternGraph::PatternGraph(std::size_t n_most) : n_most_(n_most) {
  any_ = add({.kind = Node::Kind::kAny});
  end_ = add({.kind = Node::Kind::kEnd});
}

void PatternGraph::refuse_size() {
  throw Error(
      ErrorCode::kInvalidArgument,
      "the conditions on the text are too large together: simplify the pattern, or lower its counts and lengths");
}

PatternGraph::Id PatternGraph::add(Node node) {
  if (nodes_.size() >= n_most_) refuse_size();
  nodes_.push_back(std::move(node));
  return static_cast<Id>(nodes_.size() - 1);
}

PatternGraph::Id PatternGraph::found(const Pattern& pattern) {
  const Id here = compile(pattern, any_);
  const Id anywhere = add({.kind = Node::Kind::kOr});
  nodes_[anywhere].children = {here, add_set(CharacterSet::all(), anywhere)};
  return anywhere;
}

PatternGraph::Id PatternGraph::of_length(std::uint32_t least, std::uint32_t most) {
  return compile({.kind = Pattern::Kind::kRepeat,
                  .children = {{.kind = Pattern::Kind::kSet, .set = CharacterSet::all()}},
                  .least = least,
                  .most = most},
                 end_);
}

PatternGraph::Id PatternGraph::multiple(const Step& step) {
  const CharacterSet zero{{'0', '0'}}, point{{'.', '.'}}, sign{{'-', '-'}};
  const Id zeros = add({.kind = Node::Kind::kOr, .children = {end_}});
  const Id more = add_set(zero, zeros);
  nodes_[zeros].children.push_back(more);
  const Id whole = add({.kind = Node::Kind::kOr, .children = {end_, add_set(point, add_set(zero, zeros))}});
  // Adds the digits that may follow a remainder of `left`; `next` has the nodes for each remainder after one more
  // digit.
  const auto add_digits = [&](Id from, std::uint32_t left, const std::vector<Id>& next) {
    std::map<Id, std::vector<CharacterSet::Range>> digits;
    for (std::uint32_t digit = 0; digit < 10; ++digit) {
      digits[next[(10 * left + digit) % step.factor]].push_back({'0' + digit, '0' + digit});
    }
    for (auto& [to, ranges] : digits) {
      const Id moved = add_set(CharacterSet(std::move(ranges)), to);
      nodes_[from].children.push_back(moved);
    }
  };
  const auto new_nodes = [&] {
    std::vector<Id> all;
    for (std::uint32_t left = 0; left < step.factor; ++left) all.push_back(add({.kind = Node::Kind::kOr}));
    return all;
  };
  // The nodes are built backwards from the last digit after the point that may differ from 0.
  std::vector<Id> behind;
  std::uint64_t scale = 1;  // 10 to the number of missing digits, modulo the factor
  for (int i = step.n_digits; i > 0; --i, scale = scale * 10 % step.factor) {
    std::vector<Id> here = new_nodes();
    for (std::uint32_t left = 0; left < step.factor; ++left) {
      if (left * scale % step.factor == 0) nodes_[here[left]].children.push_back(behind.empty() ? zeros : end_);
      if (!behind.empty()) add_digits(here[left], left, behind);
    }
    behind = std::move(here);
  }
  const std::vector<Id> before = new_nodes();
  Id round = whole;
  for (int i = step.n_digits; i < 0; ++i) round = add_set(zero, round);
  for (std::uint32_t left = 0; left < step.factor; ++left) {
    add_digits(before[left], left, before);
    if (behind.empty()) {
      if (left == 0) nodes_[before[left]].children.push_back(round);
      continue;
    }
    if (left * scale % step.factor == 0) nodes_[before[left]].children.push_back(end_);
    const Id first = add({.kind = Node::Kind::kOr});
    add_digits(first, left, behind);
    const Id pointed = add_set(point, first);
    nodes_[before[left]].children.push_back(pointed);
  }
  const Id start = add({.kind = Node::Kind::kOr});
  add_digits(start, 0, before);
  const Id nothing = add_set(zero, whole);
  nodes_[start].children.push_back(nothing);
  const Id negative = add_set(sign, start);
  return add({.kind = Node::Kind::kOr, .children = {start, negative}});
}

PatternGraph::Id PatternGraph::word_set() { return number_of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }

PatternGraph::Id PatternGraph::add_set(const CharacterSet& set, Id next) {
  return add({.kind = Node::Kind::kSet, .value = number_of(set), .children = {next}});
}

PatternGraph::Id PatternGraph::number_of(const CharacterSet& set) {
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    if (sets_[i].ranges() == set.ranges()) return static_cast<Id>(i);
  }
  sets_.push_back(set);
  return static_cast<Id>(sets_.size() - 1);
}

PatternGraph::Id PatternGraph::compile(const Pattern& pattern, Id next) {
  switch (pattern.kind) {
    case Pattern::Kind::kSet:
      return add_set(pattern.set, next);
    case Pattern::Kind::kSequence:
      for (auto child = pattern.children.rbegin(); child != pattern.children.rend(); ++child) {
        next = compile(*child, next);
      }
      return next;
    case Pattern::Kind::kChoice: {
      Node either{.kind = Node::Kind::kOr};
      for (const Pattern& child : pattern.children) either.children.push_back(compile(child, next));
      return add(std::move(either));
    }
    case Pattern::Kind::kRepeat:
      return compile_repeat(pattern, next);
    case Pattern::Kind::kLookAhead: {
      Id ahead = compile(pattern.children.front(), any_);
      if (pattern.is_negated) ahead = add({.kind = Node::Kind::kNot, .children = {ahead}});
      return add({.kind = Node::Kind::kAnd, .children = {ahead, next}});
    }
    case Pattern::Kind::kBegin:
      return add({.kind = Node::Kind::kBegin, .children = {next}});
    case Pattern::Kind::kEnd:
      return add({.kind = Node::Kind::kAnd, .children = {end_, next}});
    case Pattern::Kind::kWordBoundary:
      return add({.kind = Node::Kind::kWordBoundary,
                  .value = pattern.is_negated ? 1U : 0U,
                  .children = {next, add_set(sets_[word_set()], any_)}});
  }
  return next;
}

PatternGraph::Id PatternGraph::compile_repeat(const Pattern& pattern, Id next) {
  const Pattern& one = pattern.children.front();
  Id first = next;
  if (pattern.most == Pattern::kUnbounded) {
    first = add({.kind = Node::Kind::kOr});
    const Id again = compile(one, first);
    nodes_[first].children = {again, next};
  } else {
    for (std::uint32_t i = pattern.least; i < pattern.most; ++i) {
      first = add({.kind = Node::Kind::kOr, .children = {compile(one, first), next}});
    }
  }
  for (std::uint32_t i = 0; i < pattern.least; ++i) {
    const Id again = compile(one, first);
    if (again == first) break;  // it takes no characters
    first = again;
  }
  return first;
}

}  // namespace winnow
