// A graph of patterns, each with all that follows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schema/character_set.h"
#include "schema/number_pattern.h"
#include "schema/pattern.h"

namespace winnow {

class PatternGraph {
 public:
  using Id = std::uint32_t;  // the number of a node

  // A node describes what may follow from a place of a pattern to the end of the text.
  struct Node {
    enum class Kind {
      kSet,           // a character of set `value`, then the first child
      kAny,           // any text
      kEnd,           // the empty text
      kOr,            // one of the children
      kAnd,           // all of the children
      kNot,           // a text that the child does not match
      kBegin,         // the child, if no character stands before it
      kWordBoundary,  // the first child, at a word boundary; not at one if `value` is 1
    };
    Kind kind = Kind::kAny;
    Id value = 0;
    std::vector<Id> children;
  };

  // Has at most n_most nodes: functions that add more call refuse_size().
  explicit PatternGraph(std::size_t n_most);

  // Throws Error(kInvalidArgument), which says that the conditions on a text are too large.
  [[noreturn]] static void refuse_size();

  Id add(Node node);

  // Returns a node for texts in which the pattern is found anywhere.
  Id found(const Pattern& pattern);

  // Returns a node for texts with so many characters.
  Id of_length(std::uint32_t least, std::uint32_t most);

  // Returns a node for numbers that are multiples of a step, in digits that may have a point and a sign. Its nodes
  // follow the remainder digit by digit.
  Id multiple(const Step& step);

  // Returns the number of the set of the characters of words.
  Id word_set();

  const Node& node(Id id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }
  const std::vector<CharacterSet>& sets() const { return sets_; }

 private:
  Id add_set(const CharacterSet& set, Id next);
  Id number_of(const CharacterSet& set);
  // Adds the nodes of a pattern that `next` follows, and returns the first.
  Id compile(const Pattern& pattern, Id next);
  Id compile_repeat(const Pattern& pattern, Id next);

  std::size_t n_most_;
  Id any_ = 0, end_ = 0;
  std::vector<Node> nodes_;
  std::vector<CharacterSet> sets_;
};

}  // namespace winnow
